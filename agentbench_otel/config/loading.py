"""A config file → `Config`, or every problem that it has at once."""

from pathlib import Path as FilePath

from pydantic import ValidationError

from agentbench_otel.config.model import Config
from agentbench_otel.config.problems import path_words, problem_words
from agentbench_otel.config.yaml_lines import Path, YamlProblem, read_yaml
from agentbench_otel.errors import ConfigError

_SIZE_LIMIT_BYTES = 1 << 20


def load_config(file: FilePath) -> Config:
    """Read and validate a config file.

    Raises:
        ConfigError: One line ``file:line: key.path: what is wrong; what is allowed`` per problem, by line.
    """
    config, _ = load_config_with_lines(file)
    return config


def load_config_with_lines(file: FilePath) -> tuple[Config, "KeyPlaces"]:
    """As `load_config`, and where each key stands, for problems that show only later (a key that is unset)."""
    try:
        document = read_yaml(_read_text(file))
    except YamlProblem as problem:
        raise ConfigError(_line(str(file), problem.line, problem.path, problem.words)) from None
    places = KeyPlaces(str(file), document.lines)
    if document.data is None:
        raise ConfigError(places.message((), "is empty; `agentbench-otel config init` writes an example"))
    if not isinstance(document.data, dict):
        raise ConfigError(places.message((), "must be a mapping with schema_version and targets"))
    try:
        return Config.model_validate(document.data), places
    except ValidationError as error:
        problems = [
            (places.line(at), places.message(path, problem_words(one, path), at=at))
            for one in error.errors(include_url=False)
            for path in [_data_path(one["loc"], document.data)]
            for at in [(*path, one["ctx"]["at"]) if "at" in one.get("ctx", {}) else path]
        ]
        raise ConfigError("\n".join(dict.fromkeys(message for _, message in sorted(problems)))) from None


class KeyPlaces:
    """Where the keys of a config file stand."""

    def __init__(self, file: str, lines: dict[Path, int]) -> None:
        self._file = file
        self._lines = lines

    def line(self, path: Path) -> int:
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def message(self, path: Path, words: str, *, at: Path | None = None) -> str:
        """``at`` leads to the line where that is another one than the path's."""
        return _line(self._file, self.line(path if at is None else at), path, words)


def _line(file: str, line: int, path: Path, words: str) -> str:
    return f"{file}:{line}: {path_words(path) or 'the document'}: {words}"


def _data_path(location: tuple[str | int, ...], data: object) -> Path:
    """Pydantic's location without the steps that only its types have; a missing key stays at the end."""
    path: list[str | int] = []
    for step in location:
        if isinstance(data, dict) and isinstance(step, str):
            path.append(step)
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            path.append(step)
            data = data[step]
    return tuple(path)


def _read_text(file: FilePath) -> str:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror}; give a readable YAML file") from None
    if len(raw) > _SIZE_LIMIT_BYTES:
        raise ConfigError(f"{file}: is larger than 1 MiB; a config is a few kilobytes of YAML")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{file}:{line}: the document: is not UTF-8; save it as UTF-8 text") from None
