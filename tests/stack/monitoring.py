"""Prometheus and Alertmanager with the very files of ``deploy/``, on loopback and in a hurry.

Debian's Prometheus 2.42 and Alertmanager 0.25 are older than those of the compose file: the files keep to what
both read. Changed for a test are only addresses, intervals, and the ``for`` of alerts.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.stack.servers import RunningPrometheus, _installed_once, _prometheus_folder, _running

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
ALERTMANAGER = "prometheus-alertmanager"
PDEATHSIG = ("setpriv", "--pdeathsig", "KILL")  # it does not end with its stdin, so the kernel ends it with us


@contextmanager
def deployed_prometheus(
    workdir: Path, *, scraped: str, alertmanager: str | None = None, program: Path | None = None
) -> Iterator[RunningPrometheus]:
    """``scraped``, ``alertmanager``: host:port in place of the names of the compose file. ``program``: instead of
    Debian's."""
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text("utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in config["scrape_configs"]:
        if job["job_name"] == "agentbench":
            job["static_configs"] = [{"targets": [scraped]}]
    config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] == "agentbench"]
    managers = [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []
    config["alerting"] = {"alertmanagers": managers}
    (workdir / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    copy_rules(workdir / "rules")
    command = [
        *PDEATHSIG,
        str(_prometheus_folder() / "usr/bin/prometheus" if program is None else program),
        f"--config.file={workdir / 'prometheus.yml'}",
        f"--storage.tsdb.path={workdir / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--enable-feature=exemplar-storage",
    ]
    listening = r'msg="Listening on" (?:component=web )?address=127\.0\.0\.1:(\d+)'
    log_path = workdir / "prometheus.log"
    with _running("prometheus", command, log_path, {}, listening=listening, health_path="/-/ready") as server:
        yield RunningPrometheus(address=urlsplit(server.base_url).netloc, log_path=log_path)


def copy_rules(folder: Path) -> None:
    """The rules of ``deploy/`` whose alerts fire at once: how long they wait is for promtool's unit tests."""
    folder.mkdir()
    for file in (DEPLOY / "prometheus").glob("*.rules.yml"):
        text = re.sub(r"^( +)for: \w+$", r"\1for: 0s", file.read_text("utf-8"), flags=re.MULTILINE)
        (folder / file.name).write_text(re.sub(r"interval: 30s", "interval: 1s", text), encoding="utf-8")


@contextmanager
def deployed_alertmanager(workdir: Path, *, webhooks: str) -> Iterator[str]:
    """Its address, host:port. ``webhooks``: the host:port that its receivers ask."""
    text = (DEPLOY / "alertmanager/alertmanager.yml").read_text("utf-8").replace("127.0.0.1:9999", webhooks)
    config: dict[str, Any] = yaml.safe_load(text)
    config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    (workdir / "alertmanager.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    folder = alertmanager_folder()
    command = [
        # Debian's binary reads its templates from /usr/share only: they are laid over it, for this process alone.
        *(
            "unshare",
            "--mount",
            "sh",
            "-c",
            f'mount -t overlay overlay -o {_overlay(folder)} /usr/share && exec "$@"',
            "sh",
        ),
        *PDEATHSIG,
        str(folder / "usr/bin/prometheus-alertmanager"),
        f"--config.file={workdir / 'alertmanager.yml'}",
        f"--storage.path={workdir / 'alerts'}",
        "--web.listen-address=127.0.0.1:0",
        "--cluster.listen-address=",
    ]
    log_path = workdir / "alertmanager.log"
    listening = r'msg="Listening on" address=127\.0\.0\.1:(\d+)'
    with _running("alertmanager", command, log_path, {}, listening=listening, health_path="/-/ready") as server:
        yield urlsplit(server.base_url).netloc


def _overlay(folder: Path) -> str:
    return f"lowerdir={folder / 'usr/share'}:/usr/share"


@contextmanager
def deployed_jaeger(workdir: Path, program: Path) -> Iterator[tuple[str, str]]:
    """The URLs of its OTLP receiver over HTTP and of its query API."""
    text = (DEPLOY / "jaeger/config.yaml").read_text("utf-8")
    ports = {port: _free_port() for port in re.findall(r"0\.0\.0\.0:(\d+)", text)}
    for port, free in ports.items():
        text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{free}")
    config = workdir / "jaeger.yaml"
    config.write_text(text, encoding="utf-8")
    query = ports["16686"]
    command = [*PDEATHSIG, str(program), "--config", str(config)]
    log_path = workdir / "jaeger.log"
    with _running(
        "jaeger", command, log_path, {}, listening=rf'"addr": "127\.0\.0\.1:({query})"', health_path="/"
    ):
        yield f"http://127.0.0.1:{ports['4318']}", f"http://127.0.0.1:{query}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def alertmanager_folder() -> Path:
    return _installed_once(f"debian-{ALERTMANAGER}", _install_alertmanager)


def _install_alertmanager(folder: Path) -> list[list[str]]:
    # Unpacked only: an installed package would start its daemon.
    fetch = 'cd "$1" && { apt-get download "$2" || { apt-get update && apt-get download "$2"; }; }'
    return [["sh", "-c", f'{fetch} && dpkg -x "$2"_*.deb .', "sh", str(folder), ALERTMANAGER]]
