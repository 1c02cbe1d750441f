"""Chromium without a window, and a server on loopback for the pages that it is shown."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PATIENCE_S = 60.0
_VIRTUAL_MS = 2_000  # less than the refresh of the status page
_CONSOLE = re.compile(r"CONSOLE[:(].*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """``csp``: its Content-Security-Policy; None sends none."""

    html: str
    csp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What a browser made of a page. ``console``: what it had to complain about."""

    dom: str
    console: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    program: str

    def visit(self, url: str, *, width: int = 1280) -> Visit:
        with tempfile.TemporaryDirectory() as profile:
            done = subprocess.run(
                [
                    self.program,
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-background-networking",
                    "--no-first-run",
                    "--enable-logging=stderr",
                    f"--user-data-dir={profile}",
                    f"--window-size={width},900",
                    f"--virtual-time-budget={_VIRTUAL_MS}",
                    "--dump-dom",
                    url,
                ],
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=True,
            )
        return Visit(dom=done.stdout, console=tuple(_CONSOLE.findall(done.stderr)))


def find_browser() -> Browser | None:
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    return None if program is None else Browser(program=program)


_MEASURE = """<!doctype html><meta charset="utf-8"><iframe id="shown" src="%s" width="%d" height="900"></iframe>
<script>
addEventListener("load", () => {
  const shown = document.getElementById("shown").contentDocument;
  const told = document.createElement("output");
  const expressions = %s;
  told.textContent = JSON.stringify(Object.fromEntries(Object.entries(expressions).map(
    ([name, expression]) => [name, new Function("page", "return " + expression)(shown)])));
  document.body.append(told);
});
</script>"""


def measuring(path: str, *, width: int, expressions: Mapping[str, str]) -> Page:
    """A page of ours with a script, around the page at ``path``, which may have none.

    Each expression is JavaScript about ``page``, the document that is shown ``width`` pixels wide.
    """
    return Page(html=_MEASURE % (path, width, json.dumps(dict(expressions))))


def measured(visit: Visit) -> dict[str, Any]:
    """The values of the expressions, by name."""
    (told,) = re.findall(r"<output>(.*?)</output>", visit.dom, re.DOTALL)
    values: dict[str, Any] = json.loads(unescape(told))
    return values


@contextmanager
def pages_served(pages: Mapping[str, Page]) -> Iterator[str]:
    """The URL of a server that has these pages, by path; anything else is 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            body = b"" if page is None else page.html.encode()
            self.send_response(204 if self.path == "/favicon.ico" else 404 if page is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            if page is not None and page.csp is not None:
                self.send_header("Content-Security-Policy", page.csp)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
