"""``once``: one cycle of runs, now."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentbench_otel.cli.output import deliver, exit_code, format_option, output_option, tell
from agentbench_otel.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench_otel.config.model import Config
    from agentbench_otel.ports import Sink
    from agentbench_otel.runner import RunPlan


@click.command()
@click.option("--mock", is_flag=True, help="Answer from the cases' own scripts: no config, no key, no network.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="The targets and what to run.")
@click.option("--target", "targets", multiple=True, metavar="NAME", help="Only this target; may be repeated.")
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Only this case; may be repeated.")
@click.option("--mode", "modes", multiple=True, metavar="NAME", help="Only this mode; may be repeated.")
@click.option("--runs", type=click.IntRange(min=1), help="Runs per case and mode, instead of the config's.")
@format_option
@output_option
@click.option(
    "--spans",
    type=click.Path(path_type=Path),
    help="Write all spans to this file as OTLP JSON lines, for `measure`.",
)
def once(
    *,
    mock: bool,
    config_file: Path | None,
    targets: tuple[str, ...],
    cases: tuple[str, ...],
    modes: tuple[str, ...],
    runs: int | None,
    format_name: str,
    output: Path | None,
    spans: Path | None,
) -> None:
    """Run every case in every mode against every target, one run at a time, and print the report.

    With --mock the scripted mock answers. Otherwise --config names the file with the targets
    (`agentbench-otel config init` writes an example).
    """
    from agentbench_otel import app
    from agentbench_otel.config.loading import load_config
    from agentbench_otel.loop import leave

    if mock:
        config = app.mock_config() if config_file is None else load_config(config_file)
        endpoints = app.mock_endpoints()
    elif config_file is not None:
        config, endpoints = app.load_live_config(config_file, app.environment())
    else:
        raise click.UsageError("give --config FILE for a live run, or --mock")
    plans = _select(config, targets=targets, cases=cases, modes=modes, runs=runs)

    from agentbench_otel.cli.progress import Progress
    from agentbench_otel.reports.atomic_file import AtomicFile

    if output is not None and spans is not None and output.resolve() == spans.resolve():
        raise InputError(f"--output and --spans are both {output}; name two files")
    with ExitStack() as files:
        report_file = None if output is None else files.enter_context(AtomicFile(output))
        progress = files.enter_context(Progress(len(plans)))
        sinks: list[Sink] = [progress]
        spans_sink = None
        if spans is not None:
            from agentbench_otel.reports.spans_file import SpansSink

            spans_sink = SpansSink(files.enter_context(AtomicFile(spans)))
            sinks.append(spans_sink)
        push = app.make_push(config, plans, app.environment(), is_mock=mock)
        if push is not None:
            sinks.append(push)
        cycle = app.run_cycle(
            config, plans, endpoints=endpoints, is_mock=mock, sinks=sinks, on_start=progress.start
        )
        progress.clear()
        if cycle.signal_number is not None:
            tell(f"aborted by signal {cycle.signal_number} in run {len(cycle.report.runs)} of {len(plans)}")
        if push is not None:
            push.hand_over()
            tell(push.words())
        deliver(cycle.report, format_name, report_file)
        if spans_sink is not None and spans_sink.failure is not None:
            raise spans_sink.failure
    leave(exit_code(cycle.report) if cycle.signal_number is None else 128 + cycle.signal_number)


def _select(
    config: "Config",
    *,
    targets: "Sequence[str]",
    cases: "Sequence[str]",
    modes: "Sequence[str]",
    runs: int | None,
) -> "list[RunPlan]":
    """The runs that the options leave of the config's. An option may name what the config does not list."""
    from agentbench_otel.records.scenario import CaseId, Mode
    from agentbench_otel.runner import plan_runs

    _check_names("--target", "target", targets, [target.name for target in config.targets])
    _check_names("--case", "case", cases, [case.value for case in CaseId])
    _check_names("--mode", "mode", modes, [mode.value for mode in Mode])
    wanted = {
        "cases": tuple(CaseId(name) for name in dict.fromkeys(cases)),
        "modes": tuple(Mode(name) for name in dict.fromkeys(modes)),
        "runs_per_case": runs,
    }
    benchmark = config.benchmark.model_copy(update={key: value for key, value in wanted.items() if value})
    chosen = [target for target in config.targets if not targets or target.name in targets]
    return plan_runs(chosen, benchmark)


def _check_names(option: str, what: str, names: "Sequence[str]", allowed: list[str]) -> None:
    from agentbench_otel.config.problems import nearest

    for name in names:
        if name not in allowed:
            raise InputError(
                f"{option} {name}: unknown {what}{nearest(name, allowed)}; allowed are {', '.join(allowed)}"
            )
