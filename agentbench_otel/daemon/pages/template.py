"""The templates and what they may call."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from agentbench_otel.daemon.pages import words
from agentbench_otel.reports.words import count, ms, ms_unit, printable


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("agentbench_otel.daemon.pages"),
        autoescape=True,  # models, errors and failures are other people's texts
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "exact_ms": words.exact_ms,
        "figure": count,
        "lasting": words.lasting,
        "ms": ms,
        "ms_unit": ms_unit,
        "percent": words.percent,
        "printable": printable,
        "share": words.share,
        "stamp": words.stamp,
    }
    environment.globals |= {"relative": words.relative}
    return environment


_ENVIRONMENT = _environment()


def render(template: str, *, nonce: str, **values: object) -> str:
    """Raises:
    UndefinedError: The template asks for a value that is not there.
    """
    return _ENVIRONMENT.get_template(template).render(nonce=nonce, **values)
