"""The newest Prometheus and Jaeger, built from source: Debian's packages are older than the files of ``deploy/``.

They take some minutes to build, once: the stack cache keeps them. Without Go on the machine they cannot be had.
"""

import shutil
from pathlib import Path

from tests.stack.servers import ServerUnavailable, _installed_once

PROMETHEUS = "v0.316.0"  # its module's way to say 3.16
JAEGER = "v1.76.0"  # holds Jaeger 2, as cmd/jaeger


def has_go() -> bool:
    return shutil.which("go") is not None


def promtool() -> Path:
    return _built(f"go-promtool@{PROMETHEUS}", "github.com/prometheus/prometheus/cmd/promtool", PROMETHEUS)


def prometheus() -> Path:
    return _built(f"go-prometheus@{PROMETHEUS}", "github.com/prometheus/prometheus/cmd/prometheus", PROMETHEUS)


def jaeger() -> Path:
    return _built(f"go-jaeger@{JAEGER}", "github.com/jaegertracing/jaeger/cmd/jaeger", JAEGER)


def _built(name: str, package: str, version: str) -> Path:
    """The program.

    Raises:
        ServerUnavailable: No Go, or it does not build.
    """
    if not has_go():
        raise ServerUnavailable("there is no Go to build it with")

    def commands(folder: Path) -> list[list[str]]:
        # A module of our own around it: its replace directives forbid a plain `go install`.
        module = 'cd "$1" && go mod init example.org/tools && go get -tool "$2@$3"'
        build = f'{module} && go build -o program "$2" && rm -rf go.*'
        return [["sh", "-c", build, "sh", str(folder), package, version]]

    return _installed_once(name, commands) / "program"
