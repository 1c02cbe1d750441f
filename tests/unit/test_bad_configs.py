"""Every rule of the config has a file that breaks it and the exact words that a user then reads.

``tests/data/bad_configs/NAME.yaml`` is the config, ``NAME.txt`` the message with the file named as ``NAME.yaml``.
Every value that may be a secret holds SECRET.
"""

import re
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from agentbench_otel import app
from agentbench_otel.config import load_config
from agentbench_otel.errors import ConfigError

BAD_CONFIGS = Path(__file__).parent.parent / "data" / "bad_configs"
NAMES = sorted(path.stem for path in BAD_CONFIGS.glob("*.yaml"))
SECRET = "SECRET-7Q4Z"
ENVIRONMENT = {"BLANK_KEY": " \t ", "UNSENDABLE_KEY": f"{SECRET}ä"}

TARGET = "schema_version: 1\ntargets:\n  - name: local\n    base_url: http://127.0.0.1:8080/v1\n    model: small\n"


def refusal(file: Path) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        app.load_live_config(file, ENVIRONMENT)
    return refused.value


@pytest.fixture
def in_bad_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages name the file as it was given."""
    monkeypatch.chdir(BAD_CONFIGS)


Refuse = Callable[[str], str]


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Write a text as ``bad.yaml`` and return the message that refuses it."""
    monkeypatch.chdir(tmp_path)

    def refuse_text(text: str) -> str:
        Path("bad.yaml").write_text(text, encoding="utf-8")
        return str(refusal(Path("bad.yaml")))

    return refuse_text


def test_each_bad_config_has_its_message_and_each_message_its_config() -> None:
    assert sorted(path.stem for path in BAD_CONFIGS.glob("*.txt")) == NAMES
    assert len(NAMES) > 200


@pytest.mark.usefixtures("in_bad_configs")
@pytest.mark.parametrize("name", NAMES)
def test_the_message_is_exactly_this(name: str) -> None:
    expected = Path(f"{name}.txt").read_text(encoding="utf-8")
    assert f"{refusal(Path(f'{name}.yaml'))}\n" == expected


@pytest.mark.usefixtures("in_bad_configs")
@pytest.mark.parametrize("name", NAMES)
def test_no_secret_is_in_the_message(name: str) -> None:
    error = refusal(Path(f"{name}.yaml"))
    assert SECRET not in f"{error}{error!r}{error.args}"
    assert SECRET not in "".join(traceback.format_exception(error))


@pytest.mark.usefixtures("in_bad_configs")
@pytest.mark.parametrize("name", NAMES)
def test_each_line_of_a_message_names_a_line_of_the_file(name: str) -> None:
    line_count = max(1, len(Path(f"{name}.yaml").read_bytes().splitlines()))
    for line in Path(f"{name}.txt").read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(rf"{re.escape(name)}\.yaml:(\d+): [^ ].*: \S.*", line)
        assert match is not None, line
        assert 1 <= int(match[1]) <= line_count


# --- rules whose words may change: only file, line and key are fixed -----------------------------------------


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ('    headers:\n      X-Key: " SECRET-7Q4Z"\n', "7: targets[0].headers"),  # h11 refuses it, and quotes it
        ('    headers:\n      X-Key: "SECRET-7Q4Z "\n', "7: targets[0].headers"),
        ('    headers:\n      X-Key: "SECRET-7Q4Z\\t"\n', "7: targets[0].headers"),
        ('    headers:\n      X-Key: "SECRET-7Q4Z\\0"\n', "7: targets[0].headers"),
        ('    headers:\n      "": SECRET-7Q4Z\n', "7: targets[0].headers"),
        ("    headers:\n      Accept: SECRET-7Q4Z\n", "7: targets[0].headers"),
        ("    headers:\n      accept-encoding: SECRET-7Q4Z\n", "7: targets[0].headers"),
        ("    headers:\n      Connection: SECRET-7Q4Z\n", "7: targets[0].headers"),
        ("    headers:\n      CONTENT-TYPE: SECRET-7Q4Z\n", "7: targets[0].headers"),
        ("    headers:\n      host: SECRET-7Q4Z\n", "7: targets[0].headers"),
        ("    headers:\n      Transfer-Encoding: SECRET-7Q4Z\n", "7: targets[0].headers"),
        ("    headers:\n      X-Key: SECRET-7Q4Z\n      x-key: SECRET-7Q4Z\n", "8: targets[0].headers"),
        ('    api_key_file: "a\\0b"\n', "6: targets[0].api_key_file: "),
        ('schedule: {cron: "every day"}\n', "6: schedule.cron"),
        ('schedule: {cron: ""}\n', "6: schedule.cron"),
        ('schedule: {cron: "0 * * * *", timezone: Mars/Olympus}\n', "6: schedule.timezone"),
        ('    provider: "a\\x1b[31mb"\n', "6: targets[0].provider"),
        ('"": 1\n', "6: the document: "),
    ],
)
def test_a_value_that_would_fail_later_is_refused_at_its_line(refuse: Refuse, lines: str, where: str) -> None:
    message = refuse(TARGET + lines)
    assert message.startswith(f"bad.yaml:{where}")
    assert "; " in message  # … and what is allowed
    assert SECRET not in message


@pytest.mark.parametrize("model", [r'"small\x1b[31m"', r'"sma\nll"', r'"small\ud800"', r'"\u200bsmall"'])
def test_a_model_name_is_printable(refuse: Refuse, model: str) -> None:
    assert refuse(TARGET.replace("small", model)).startswith("bad.yaml:5: targets[0].model: ")


@pytest.mark.parametrize(
    "text",
    [
        TARGET + f"    headers: {{'Bearer {SECRET}': 5}}\n",
        TARGET + f"    headers: {{'Bearer {SECRET}': a, 'Bearer {SECRET}': b}}\n",
        f"schema_version: 1\ntargets: [{{base_url:http://user:{SECRET}@host/v1, model: small}}]\n",
        f"schema_version: 1\ntargets: [{{name: local, api_key:sk-{SECRET}, model: small}}]\n",
        TARGET + f"    headers: &{SECRET} {{}}\n    timeouts: &{SECRET} {{}}\n",
    ],
)
def test_a_secret_in_the_place_of_a_key_is_not_echoed(refuse: Refuse, text: str) -> None:
    """A blank that is missing after a colon makes a key of the value."""
    assert SECRET not in refuse(text)


@pytest.mark.parametrize("key", [r'"a\x1b[31m"', r'"a\nbad.yaml:1: b"', r'"a\u202eb"', '"' + "k" * 300 + '"'])
def test_an_unknown_key_is_echoed_as_one_short_printable_line(refuse: Refuse, key: str) -> None:
    message = refuse(TARGET + f"? {key}\n: 1\n")
    assert message.startswith("bad.yaml:6: ")
    assert message.isprintable()
    assert len(message) < 300


# --- the file itself -----------------------------------------------------------------------------------------


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "no.yaml"
    assert str(refusal(file)) == f"{file}: can't be read: No such file or directory; give a readable YAML file"


def test_a_directory_is_no_config(tmp_path: Path) -> None:
    assert str(refusal(tmp_path)) == f"{tmp_path}: can't be read: Is a directory; give a readable YAML file"


def test_a_file_over_1_mib_is_not_parsed(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(TARGET + "#" * (1 << 20), encoding="utf-8")
    assert str(refusal(file)) == f"{file}: is larger than 1 MiB; a config is a few kilobytes of YAML"


def test_a_file_of_just_1_mib_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(TARGET + "#" * ((1 << 20) - len(TARGET)), encoding="utf-8")
    assert load_config(file).targets[0].name == "local"
