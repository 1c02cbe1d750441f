"""Where a target's key comes from: an environment variable or a file, never the config itself."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from agentbench_otel.config.loading import KeyPlaces
from agentbench_otel.config.model import Config, Target
from agentbench_otel.errors import ConfigError
from agentbench_otel.redaction import SHORTEST_SECRET

_KEY_SIZE_LIMIT_BYTES = 1 << 16


def resolve_api_keys(
    config: Config, places: KeyPlaces, environment: Mapping[str, str]
) -> dict[str, SecretStr | None]:
    """The key of each target by its name; None where the target names none.

    Raises:
        ConfigError: A key that is named but unset, blank, unreadable or not sendable; one line each.
    """
    keys: dict[str, SecretStr | None] = {}
    problems: list[str] = []
    for index, target in enumerate(config.targets):
        try:
            keys[target.name] = resolve_api_key(target, environment)
        except ValueError as problem:
            key = "api_key_env" if target.api_key_env is not None else "api_key_file"
            problems.append(places.message(("targets", index, key), str(problem)))
    if problems:
        raise ConfigError("\n".join(problems))
    return keys


def resolve_api_key(target: Target, environment: Mapping[str, str]) -> SecretStr | None:
    """The key of one target.

    Raises:
        ValueError: It can't be had. The text names neither the key nor the variable: people paste keys in
            the wrong place.
    """
    if target.api_key_env is not None:
        raw = environment.get(target.api_key_env, "")
        source = "environment variable"
    elif target.api_key_file is not None:
        raw = _read(Path(target.api_key_file))
        source = "file"
    else:
        return None
    key = raw.strip()
    if not key:
        raise ValueError(
            f"names an {source} that is unset or blank; set it, or remove the line for no Authorization"
            if source == "environment variable"
            else "names a file that is blank; write the key into it, or remove the line for no Authorization"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"the {source} holds a key that can't be sent; allowed are printable ASCII characters")
    return SecretStr(key)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_KEY_SIZE_LIMIT_BYTES).decode()
    except OSError as error:
        raise ValueError(f"names a file that can't be read ({error.strerror}); give a readable file") from None
    except UnicodeDecodeError:
        raise ValueError("names a file that is no text; write the key into it as plain text") from None


def secret_texts(target: Target, api_key: SecretStr | None) -> tuple[str, ...]:
    """What must not leave in any text: the key, and header values that are long enough to be one."""
    headers = [value.get_secret_value() for value in target.headers.values()]
    key = "" if api_key is None else api_key.get_secret_value()
    return (*([key] if key else []), *(value for value in headers if len(value) >= SHORTEST_SECRET))
