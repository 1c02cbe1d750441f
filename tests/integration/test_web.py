"""The HTTP interface over real sockets: what it answers, what it refuses, and what can't hold it up."""

import base64
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bcrypt
import httpx
import pytest
import trustme

from agentbench_otel.config.model import Web
from agentbench_otel.daemon.scheduler import CycleRequest
from agentbench_otel.daemon.site import WebLimits
from agentbench_otel.daemon.web import WebServer, listen_warning
from agentbench_otel.errors import InputError
from agentbench_otel.records.cycles import RunQuery
from agentbench_otel.records.results import RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.telemetry.otlp_json import decode_line
from tests.support.fake_desk import LOCAL, FakeDesk, FakePast, Site, a_site, read_all, reloaded
from tests.support.history import a_run, some_spans

RUNS = [a_run(number) for number in (3, 2, 1)]
UNREADABLE = FakePast(fault=InputError("history.db: can't be read: disk I/O error"))
QUICK = WebLimits(request_s=0.3, body_s=0.2, answer_s=0.3, reload_s=0.2)
GET_METRICS = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n"
BIG = 30_000_000
"""Bytes; more than the sockets between two programs hold."""

POST_CYCLE = b"POST /api/v1/cycles HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
PAGES = ["/", f"/runs/{RUNS[0].run_id}", "/runs/nobody"]
READS = [
    "/metrics",
    "/-/healthy",
    "/-/ready",
    "/api/v1/runs",
    f"/api/v1/runs/{RUNS[0].run_id}",
    f"/api/v1/runs/{RUNS[0].run_id}/spans",
    "/",
    f"/runs/{RUNS[0].run_id}",
]
WISHES = ["/-/reload", "/api/v1/cycles"]
CYCLE = {"target": "local"}
PASSWORD = "pässword: with colon"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
USERS = {"ann": HASH, "bob": HASH.replace("$2b$", "$2y$")}


def full_past() -> FakePast:
    return FakePast(known=RUNS, spans={run.run_id: tuple(some_spans()) for run in RUNS})


def full_desk() -> FakeDesk:
    return FakeDesk(past=full_past())


# Most tests share these servers; the desk has forgotten what it was asked before.


@pytest.fixture(scope="module")
def shared_site() -> Iterator[Site]:
    with a_site(full_desk()) as site:
        yield site


@pytest.fixture
def site(shared_site: Site) -> Site:
    shared_site.desk.forget()
    return shared_site


@pytest.fixture(scope="module")
def shared_wishing() -> Iterator[Site]:
    with a_site(full_desk(), enable_lifecycle=True) as site:
        yield site


@pytest.fixture
def wishing(shared_wishing: Site) -> Site:
    """With the lifecycle interface."""
    shared_wishing.desk.forget()
    return shared_wishing


@pytest.fixture(scope="module")
def locked() -> Iterator[Site]:
    """Its client sends no password."""
    with a_site(full_desk(), basic_auth=USERS, enable_lifecycle=True) as site:
        yield site


# --- metrics and health ----------------------------------------------------------------------------------------


def test_the_metrics_page_is_the_desk_s_in_the_form_that_is_accepted(site: Site) -> None:
    answer = site.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.content == site.desk.metrics_body
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0"
    assert site.desk.accepts == ["application/openmetrics-text"]


@pytest.mark.parametrize(
    ("size", "accepted", "encoding"), [(5_000, "gzip", "gzip"), (5_000, "identity", None), (500, "gzip", None)]
)
def test_large_metrics_are_compressed_for_who_can_read_it(size: int, accepted: str, encoding: str | None) -> None:
    with a_site(FakeDesk(metrics_body=b"x" * size)) as site:
        answer = site.get("/metrics", headers={"accept-encoding": accepted})
        assert answer.content == b"x" * size
        assert answer.headers.get("content-encoding") == encoding


@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
def test_health_is_told_with_its_reason(path: str) -> None:
    with a_site() as site:
        assert site.get(path).status_code == 200
        site.desk.unhealthy = site.desk.not_ready = "the event loop sleeps"
        answer = site.get(path)
        assert (answer.status_code, answer.text) == (503, "the event loop sleeps\n")
        assert site.request("HEAD", path).status_code == 503


def test_ready_and_healthy_are_two_questions() -> None:
    with a_site(FakeDesk(not_ready="starting")) as site:
        assert site.get("/-/healthy").status_code == 200
        assert site.get("/-/ready").status_code == 503


# --- runs ------------------------------------------------------------------------------------------------------


def test_runs_are_listed_in_pieces(site: Site) -> None:
    first = site.get("/api/v1/runs", params={"limit": 2}).json()
    assert [RunResult.model_validate_json(json.dumps(run)) for run in first["runs"]] == RUNS[:2]
    assert first["next_before"] == RUNS[1].run_id
    second = site.get("/api/v1/runs", params={"limit": 2, "before": first["next_before"]}).json()
    assert [run["run_id"] for run in second["runs"]] == [RUNS[2].run_id]
    assert second["next_before"] is None


def test_an_empty_history_is_an_empty_list() -> None:
    with a_site() as site:
        assert site.get("/api/v1/runs").json() == {"runs": [], "next_before": None}
        assert site.desk.past.queries == [RunQuery(limit=50)]


def test_every_filter_reaches_the_history() -> None:
    wanted = {
        "target": "local",
        "case": "ordinary_chat",
        "mode": "dual_agent",
        "status": "failed",
        "limit": "500",
        "before": RUNS[0].run_id,
    }
    with a_site(full_desk()) as site:
        assert site.get("/api/v1/runs", params=wanted).status_code == 200
        assert site.desk.past.queries == [
            RunQuery(
                target="local",
                case_id=CaseId.ORDINARY_CHAT,
                mode=Mode.DUAL_AGENT,
                status=Status.FAILED,
                limit=500,
                before_run_id=RUNS[0].run_id,
            )
        ]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=0", "limit: is '0'; allowed: 1 to 500"),
        ("limit=501", "limit: is '501'; allowed: 1 to 500"),
        ("limit=", "limit: is ''; allowed: 1 to 500"),
        ("limit=1.5", "limit: is '1.5'"),
        ("limit=%EF%BC%91", "limit: is '１'"),
        (f"limit={'9' * 5_000}", f"limit: is '{'9' * 64}'; allowed"),
        ("case=chat", "case: is 'chat'; allowed: ordinary_chat, "),
        (f"case={'x' * 5_000}", f"case: is '{'x' * 64}'; allowed"),
        ("mode=", "mode: is ''; allowed: dual_agent, chat_agent_tools"),
        ("status=ok", "status: is 'ok'; allowed: passed, failed"),
        ("colour=red", "colour: is no parameter; allowed: before, case, limit, mode, status, target"),
        ("limit=1&limit=2", "limit: is given twice"),
    ],
)
def test_a_parameter_that_can_t_be_is_named_with_what_is_allowed(site: Site, query: str, words: str) -> None:
    answer = site.get(f"/api/v1/runs?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(words)
    assert site.desk.past.queries == []


def test_a_run_is_shown_whole(site: Site) -> None:
    answer = site.get(f"/api/v1/runs/{RUNS[0].run_id}")
    assert RunResult.model_validate_json(answer.content) == RUNS[0]


def test_spans_come_as_otlp_json_lines(site: Site) -> None:
    answer = site.get(f"/api/v1/runs/{RUNS[0].run_id}/spans")
    (line,) = answer.text.splitlines()
    assert answer.text.endswith("\n")
    assert decode_line(line).spans == list(some_spans())


@pytest.mark.parametrize("path", ["/api/v1/runs/nobody", "/api/v1/runs/nobody/spans", "/api/v1/nothing"])
def test_what_the_api_does_not_have_is_said_in_json(site: Site, path: str) -> None:
    answer = site.get(path)
    assert (answer.status_code, list(answer.json())) == (404, ["error"])


def test_spans_that_are_no_longer_kept_are_not_found() -> None:
    with a_site(FakeDesk(past=FakePast(known=RUNS))) as site:
        answer = site.get(f"/api/v1/runs/{RUNS[0].run_id}/spans")
        assert answer.status_code == 404
        assert "no longer kept" in answer.json()["error"]


@pytest.mark.parametrize(
    "path", ["/api/v1/runs", "/api/v1/runs/some", "/api/v1/runs/some/spans", "/", "/runs/some"]
)
def test_a_history_that_can_t_be_read_is_told_in_words(path: str) -> None:
    with a_site(FakeDesk(past=UNREADABLE)) as site:
        answer = site.get(path)
        assert answer.status_code == 503
        assert "disk I/O error" in answer.text
        assert site.get("/metrics").status_code == 200


# --- pages -----------------------------------------------------------------------------------------------------


def test_the_status_page_shows_the_last_day(site: Site) -> None:
    answer = site.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert RUNS[0].run_id in answer.text
    ((since, points),) = site.desk.past.overviews
    assert abs(datetime.now(UTC) - timedelta(hours=24) - since) < timedelta(minutes=1)
    assert points == 30


def test_the_page_of_a_run_shows_it(site: Site) -> None:
    answer = site.get(f"/runs/{RUNS[0].run_id}")
    assert (answer.status_code, RUNS[0].run_id in answer.text) == (200, True)


def test_a_run_that_is_unknown_has_a_page_that_says_so(site: Site) -> None:
    answer = site.get("/runs/%3Cb%3E" + "x" * 5_000)
    assert answer.status_code == 404
    assert "&lt;b&gt;xxx" in answer.text
    assert "<b>" not in answer.text
    assert "x" * 65 not in answer.text


@pytest.mark.parametrize("path", PAGES)
def test_a_page_allows_its_own_style_and_nothing_else(site: Site, path: str) -> None:
    answers = [site.get(path) for _ in range(2)]
    nonces = [re.findall(r'<style nonce="([^"]+)"', answer.text) for answer in answers]
    assert [len(found) for found in nonces] == [1, 1]
    assert nonces[0] != nonces[1]
    assert answers[0].headers["content-security-policy"] == (
        f"default-src 'none'; style-src 'nonce-{nonces[0][0]}'; img-src 'none'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


@pytest.mark.parametrize("path", [*READS, "/runs/nobody", "/nothing"])
def test_every_answer_tells_browsers_to_be_careful(site: Site, path: str) -> None:
    headers = site.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


# --- methods and paths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", READS)
def test_a_head_is_a_get_without_its_body(site: Site, path: str) -> None:
    plain = {"accept-encoding": "identity"}  # the nonce of a page changes its compressed size
    whole, head = site.get(path, headers=plain), site.request("HEAD", path, headers=plain)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert head.headers["content-length"] == whole.headers["content-length"]


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("method", ["POST", "DELETE", "NONSENSE"])
def test_what_is_only_read_takes_no_other_method(site: Site, path: str, method: str) -> None:
    answer = site.request(method, path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", WISHES)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_what_changes_something_is_only_posted(wishing: Site, path: str, method: str) -> None:
    answer = wishing.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert wishing.desk.wishes == []


@pytest.mark.parametrize(
    "path", ["/nothing", "/metrics/", "/-/", "/api/v1/runs/", "/runs/", "/runs/a%2F..", "/%00"]
)
def test_an_unknown_path_is_not_found(site: Site, path: str) -> None:
    assert site.get(path).status_code == 404


def test_reading_all_there_is_wishes_for_nothing(wishing: Site) -> None:
    assert {wishing.get(path).status_code for path in READS} == {200}
    assert wishing.desk.wishes == []


# --- lifecycle -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WISHES)
def test_wishes_are_refused_unless_the_config_enables_them(site: Site, path: str) -> None:
    answer = site.post(path, json=CYCLE)
    assert answer.status_code == 403
    assert "web.enable_lifecycle" in answer.text
    assert site.desk.wishes == []


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (CycleRequest.ACCEPTED, 202),
        (CycleRequest.IS_RUNNING, 409),
        (CycleRequest.IS_WAITING, 409),
        (CycleRequest.UNKNOWN_TARGET, 404),
        (CycleRequest.NO_BUDGET_LEFT, 429),
        (CycleRequest.STOPPING, 503),
        (TimeoutError(), 503),
    ],
)
def test_a_cycle_can_be_asked_for(
    wishing: Site, monkeypatch: pytest.MonkeyPatch, said: CycleRequest | Exception, status: int
) -> None:
    monkeypatch.setattr(wishing.desk, "cycle_answer", said)
    answer = wishing.post("/api/v1/cycles", json=CYCLE)
    assert answer.status_code == status
    assert answer.json().get("message") or answer.json()["error"]
    assert wishing.desk.wishes == ["cycle of local"]


@pytest.mark.parametrize("said", CycleRequest)
def test_every_answer_of_the_scheduler_has_a_status(
    wishing: Site, monkeypatch: pytest.MonkeyPatch, said: CycleRequest
) -> None:
    monkeypatch.setattr(wishing.desk, "cycle_answer", said)
    assert wishing.post("/api/v1/cycles", json=CYCLE).status_code != 500


def test_before_it_is_ready_the_daemon_takes_no_wish_for_a_cycle() -> None:
    with a_site(FakeDesk(not_ready="starting"), enable_lifecycle=True) as site:
        answer = site.post("/api/v1/cycles", json=CYCLE)
        assert answer.status_code == 503
        assert "starting" in answer.json()["error"]
        assert site.desk.wishes == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"local"',
        b"{}",
        b'{"target": 1}',
        b'{"target": "local", "more": 1}',
        b"\xff\xfe\xfd",
        b"[" * 4_000,
        b"1" * 4_096,
    ],
)
def test_a_body_that_names_no_target_is_refused(wishing: Site, body: bytes) -> None:
    answer = wishing.post("/api/v1/cycles", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "target" in answer.json()["error"]
    assert wishing.desk.wishes == []


@pytest.mark.parametrize("name", ["\\ud800", "\\u0000", "x" * 4_000])
def test_a_strange_name_is_an_unknown_target(wishing: Site, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(wishing.desk, "cycle_answer", CycleRequest.UNKNOWN_TARGET)
    body = f'{{"target": "{name}"}}'.encode()
    answer = wishing.post("/api/v1/cycles", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"]
)
def test_a_body_of_another_type_is_refused(wishing: Site, content_type: str) -> None:
    headers = {"content-type": content_type}
    answer = wishing.post("/api/v1/cycles", content=json.dumps(CYCLE), headers=headers)
    assert answer.status_code == 415
    assert wishing.desk.wishes == []


def test_a_large_body_is_refused_before_it_is_read() -> None:
    with a_site(enable_lifecycle=True) as site:
        with site.connect() as connection:
            connection.sendall(POST_CYCLE + b"content-length: 1000000000\r\n\r\n" + b"x" * 10_000)
            assert b" 413 " in connection.recv(4_096)
        assert site.desk.wishes == []


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with a_site(limits=QUICK, enable_lifecycle=True) as site:
        assert site.say(POST_CYCLE + b"content-length: 20\r\n\r\n{").startswith(b"HTTP/1.1 408 ")
        assert site.desk.wishes == []


def test_a_reload_is_waited_for_and_its_problem_told() -> None:
    with a_site(enable_lifecycle=True) as site:
        done = site.post("/-/reload")
        assert (done.status_code, done.text) == (200, "reloaded\n")
        site.desk.reload_answer = reloaded("agentbench.yaml:1: schema_version: must be the integer 1")
        refused = site.post("/-/reload")
        assert refused.status_code == 400
        assert "must be the integer 1" in refused.text
        assert site.desk.wishes == ["reload", "reload"]


def test_others_are_served_while_a_reload_takes_its_time() -> None:
    reloading: Future[str | None] = Future()
    with a_site(FakeDesk(reload_answer=reloading), enable_lifecycle=True) as site:
        answers: list[httpx.Response] = []
        waiting = threading.Thread(target=lambda: answers.append(site.post("/-/reload")))
        waiting.start()
        while not site.desk.wishes:
            assert site.get("/-/healthy").status_code == 200
        assert site.get("/metrics").status_code == 200
        assert answers == []
        reloading.set_result(None)
        waiting.join(10)
        assert answers[0].status_code == 200


def test_others_are_served_while_a_wish_for_a_cycle_waits() -> None:
    is_released = threading.Event()
    desk = FakeDesk(on_call=lambda: is_released.wait(10))
    with a_site(desk, enable_lifecycle=True) as site, site.connect() as asker:
        asker.sendall(POST_CYCLE + b'content-length: 19\r\n\r\n{"target": "local"}')
        wait_until(lambda: desk.wishes)
        start_s = time.monotonic()
        assert site.get("/-/healthy").status_code == 200
        assert time.monotonic() - start_s < 1
        is_released.set()
        assert asker.recv(65_536).startswith(b"HTTP/1.1 202 ")


def test_a_reload_that_hangs_is_told_and_not_cut_off() -> None:
    reloading: Future[str | None] = Future()
    with a_site(FakeDesk(reload_answer=reloading), limits=QUICK, enable_lifecycle=True) as site:
        assert site.post("/-/reload").status_code == 503
        assert not reloading.cancelled()
        reloading.set_result(None)


# --- who may ask -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://[", "sec-fetch-site": "none"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", WISHES)
def test_a_wish_that_another_site_makes_a_browser_send_is_refused(
    wishing: Site, path: str, headers: dict[str, str]
) -> None:
    assert wishing.post(path, json=CYCLE, headers=headers).status_code == 403
    assert wishing.desk.wishes == []


def test_a_wish_from_the_same_site_is_heard(wishing: Site) -> None:
    origin = f"http://127.0.0.1:{wishing.address[1]}"
    headers = {"origin": origin, "sec-fetch-wishing": "same-origin"}
    assert wishing.post("/api/v1/cycles", json=CYCLE, headers=headers).status_code == 202


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9464", "localhost.evil.example", "10.0.0.1", "[::2]"]
)
def test_a_foreign_name_that_leads_to_loopback_is_refused(site: Site, host: str) -> None:
    for path in READS:
        assert site.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.8.8.8:1", "[::1]:9464", "[::1]"])
def test_any_loopback_name_is_welcome(site: Site, host: str) -> None:
    assert site.get("/-/healthy", headers={"host": host}).status_code == 200


def test_what_counts_is_the_address_that_was_bound_not_its_name() -> None:
    with a_site(listen="127.1:0") as site:  # short for 127.0.0.1
        assert site.get("/-/healthy", headers={"host": "evil.example"}).status_code == 421
        assert site.get("/-/healthy", headers={"host": f"127.1:{site.address[1]}"}).status_code == 200


def test_on_an_address_of_the_network_any_name_may_be_used() -> None:
    with a_site(listen="0.0.0.0:0") as site:
        assert site.get("/-/healthy", headers={"host": "bench.example"}).status_code == 200


def test_a_client_of_http_1_0_needs_no_host(site: Site) -> None:
    assert site.say(b"GET /-/healthy HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("user", USERS)
def test_the_right_password_opens_every_route(locked: Site, user: str) -> None:
    assert {locked.get(path, auth=(user, PASSWORD)).status_code for path in READS} == {200}


@pytest.mark.parametrize("path", [*READS, "/nothing"])
def test_without_a_password_every_route_is_closed(locked: Site, path: str) -> None:
    answer = locked.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic realm=")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_without_a_password_nothing_is_wished_for(locked: Site) -> None:
    assert {locked.post(path, json=CYCLE).status_code for path in WISHES} == {401}
    assert locked.desk.wishes == []


def basic(credentials: bytes) -> bytes:
    return b"Basic " + base64.b64encode(credentials)


@pytest.mark.parametrize(
    "authorization",
    [
        b"",
        b"Basic",
        b"Basic !!!",
        b"Basic \xe9\xe9",
        b"Bearer " + base64.b64encode(f"ann:{PASSWORD}".encode()),
        basic(b"ann"),
        basic(b"ann:"),
        basic(b":"),
        basic(b"\xff:\xff"),
        basic(b"ann:wrong"),
        basic(b"ann:a\0b"),
        basic(b"ann:" + b"x" * 200),
        basic(f"nobody:{PASSWORD}".encode()),
        basic(f"ann:{HASH}".encode()),
    ],
)
def test_what_is_not_the_password_is_refused(locked: Site, authorization: bytes) -> None:
    assert locked.get("/metrics", headers={b"authorization": authorization}).status_code == 401


def test_a_password_that_was_right_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = count_checks(monkeypatch)
    with a_site(basic_auth=USERS, auth=("ann", PASSWORD)) as site:
        assert {site.get("/metrics").status_code for _ in range(5)} == {200}
        assert len(checks) == 1
        assert site.get("/metrics", auth=("ann", "wrong")).status_code == 401
        assert site.get("/metrics", auth=("ann", "wrong")).status_code == 401
        assert site.get("/metrics", auth=("bob", PASSWORD)).status_code == 200
        assert len(checks) == 4


def test_a_user_that_does_not_exist_costs_as_much_as_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = count_checks(monkeypatch)
    slow = bcrypt.hashpw(b"other", bcrypt.gensalt(5)).decode()
    with a_site(basic_auth={"ann": HASH, "eve": slow}) as site:
        for user in ("eve", "nobody"):
            assert site.get("/metrics", auth=(user, "wrong")).status_code == 401
    assert [(hashed[:6], threading.main_thread().ident != thread) for hashed, thread in checks] == [
        (b"$2b$05", True)
    ] * 2


def count_checks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, int]]:
    """The hash and the thread of each bcrypt check from now on; the checks are real."""
    checks: list[tuple[bytes, int]] = []
    check = bcrypt.checkpw

    def counted(password: bytes, hashed: bytes) -> bool:
        checks.append((hashed, threading.get_ident()))
        return check(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    return checks


def test_a_flood_of_guesses_holds_nobody_up_who_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    is_released, guesses = threading.Event(), threading.Semaphore(0)
    check = bcrypt.checkpw

    def slow(password: bytes, hashed: bytes) -> bool:
        if password == b"guess":
            guesses.release()
            is_released.wait(10)
        return check(password, hashed)

    with a_site(basic_auth=USERS, auth=("ann", PASSWORD)) as site:
        assert site.get("/metrics").status_code == 200
        monkeypatch.setattr(bcrypt, "checkpw", slow)
        guess = GET_METRICS + b"authorization: " + basic(b"ann:guess") + b"\r\n\r\n"
        guessers = [site.connect() for _ in range(100)]
        try:
            for guesser in guessers:
                guesser.sendall(guess)
            assert guesses.acquire(timeout=10)
            assert site.get("/metrics").status_code == 200
            assert not guesses.acquire(blocking=False), "two guesses at a time"
        finally:
            is_released.set()
            for guesser in guessers:
                guesser.close()


# --- TLS -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    return {"cert_file": str(folder / "cert.pem"), "key_file": str(folder / "key.pem")}


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_with_tls_the_same_is_served_encrypted(tls_files: dict[str, str], trusting: ssl.SSLContext) -> None:
    with a_site(full_desk(), tls=tls_files, scheme="https", verify=trusting) as site:
        assert {site.get(path).status_code for path in READS} == {200}


def test_plain_http_to_a_tls_port_is_not_answered(tls_files: dict[str, str]) -> None:
    with a_site(tls=tls_files) as site:
        assert b"200" not in site.say(GET_METRICS + b"\r\n")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_tls_before_1_2_is_refused(tls_files: dict[str, str], trusting: ssl.SSLContext) -> None:
    trusting.set_ciphers("DEFAULT:@SECLEVEL=0")
    trusting.minimum_version = trusting.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        a_site(tls=tls_files, scheme="https", verify=trusting) as site,
        pytest.raises(httpx.ConnectError, match=r"(?i)version|protocol"),
    ):
        site.get("/metrics")


def test_a_handshake_that_does_not_come_is_not_waited_for(tls_files: dict[str, str]) -> None:
    with a_site(tls=tls_files, limits=QUICK) as site, site.connect() as idle:
        assert read_all(idle) == b""


def broken_tls(folder: Path, tls_files: dict[str, str], what: str) -> dict[str, str]:
    garbage = folder / "garbage.pem"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n", encoding="ascii")
    other = folder / "other.pem"
    trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(str(other))
    return {
        "no certificate": {**tls_files, "cert_file": str(folder / "none.pem")},
        "no key": {**tls_files, "key_file": str(folder / "none.pem")},
        "garbage": {**tls_files, "cert_file": str(garbage)},
        "a key of another": {**tls_files, "key_file": str(other)},
        "a locked key": {**tls_files, "key_file": str(_locked_key(folder))},
    }[what]


def _locked_key(folder: Path) -> Path:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    file = folder / "locked.pem"
    file.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    return file


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no certificate", r"web\.tls\.cert_file: .*none\.pem: there is no such file"),
        ("no key", r"web\.tls\.key_file: .*none\.pem: there is no such file"),
        ("garbage", r"web\.tls: .*garbage\.pem and .* can't be used: they are not in PEM form"),
        ("a key of another", r"web\.tls: .*other\.pem can't be used: KEY_VALUES_MISMATCH"),
        ("a locked key", r"web\.tls\.key_file: .*locked\.pem: the key has a password"),
    ],
)
def test_tls_files_that_can_t_be_used_are_told_at_the_start(
    tls_files: dict[str, str], tmp_path: Path, what: str, words: str
) -> None:
    web = Web.model_validate({"listen": LOCAL, "tls": broken_tls(tmp_path, tls_files, what)})
    with pytest.raises(InputError, match=words):
        WebServer(FakeDesk(), web).start()


@pytest.mark.parametrize(
    ("listen", "lacks"),
    [
        ("127.0.0.1:9464", None),
        ("[::1]:9464", None),
        ("localhost:9464", None),
        ("0.0.0.0:9464", "web.basic_auth and web.tls"),
        ("[::]:9464", "web.basic_auth and web.tls"),
        ("bench.example:9464", "web.basic_auth and web.tls"),
    ],
)
def test_an_open_address_is_warned_of(listen: str, lacks: str | None) -> None:
    warning = listen_warning(Web.model_validate({"listen": listen}))
    assert warning == (lacks and f"web.listen {listen} is open to the network without {lacks}")


def test_the_warning_names_only_what_is_missing() -> None:
    tls = {"cert_file": "c", "key_file": "k"}
    everywhere = {"listen": "0.0.0.0:1"}
    with_tls = listen_warning(Web.model_validate({**everywhere, "tls": tls}))
    with_auth = listen_warning(Web.model_validate({**everywhere, "basic_auth": USERS}))
    assert with_tls is not None
    assert with_auth is not None
    assert with_tls.endswith("without web.basic_auth")
    assert with_auth.endswith("without web.tls")
    assert listen_warning(Web.model_validate({**everywhere, "tls": tls, "basic_auth": USERS})) is None


# --- trouble on the wire ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(200),
        b"nonsense\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        GET_METRICS + b"a" * 1_000_000 + b": b\r\n\r\n",
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        GET_METRICS + b"host: localhost\r\n\r\n",
        GET_METRICS + b"content-length: -1\r\n\r\n",
    ],
    ids=["TLS", "words", "no host", "huge header", "huge path", "two hosts", "negative length"],
)
def test_garbage_is_refused_and_the_next_is_served(
    site: Site, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    answer = site.say(garbage)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert site.get("/metrics").status_code == 200
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_idle_connections_hold_nobody_up() -> None:
    with a_site() as site:
        idle = [site.connect() for _ in range(200)]
        try:
            start_s = time.monotonic()
            assert site.get("/metrics").status_code == 200
            assert time.monotonic() - start_s < 1
        finally:
            for connection in idle:
                connection.close()


def test_requests_that_hang_do_not_hold_up_health() -> None:
    is_released = threading.Event()
    desk = FakeDesk(on_call=lambda: is_released.wait(10))
    with a_site(desk) as site:
        askers = [site.connect() for _ in range(60)]
        try:
            for asker in askers:
                asker.sendall(GET_METRICS + b"\r\n")
            assert site.get("/-/healthy").status_code == 200
        finally:
            is_released.set()
            for asker in askers:
                asker.close()


def test_a_silent_connection_is_closed() -> None:
    with a_site(limits=QUICK) as site, site.connect() as idle:
        assert read_all(idle) == b""


SLOW_STARTS = {
    "a head": GET_METRICS,
    "a head after a request": GET_METRICS + b"\r\n" + GET_METRICS,
    "a body": GET_METRICS + b"content-length: 1000000\r\n\r\n",
}


@pytest.mark.parametrize("start", SLOW_STARTS)
def test_who_sends_drop_by_drop_is_closed(start: str) -> None:
    with a_site(limits=QUICK) as site, site.connect() as slow:
        slow.sendall(SLOW_STARTS[start])
        slow.settimeout(0.02)  # between two drops
        start_s = time.monotonic()
        is_open = True
        while is_open and time.monotonic() - start_s < 4:  # less than an idle connection is kept after a request
            try:
                is_open = slow.recv(65_536) != b""
            except TimeoutError:
                slow.sendall(b"x")
            except ConnectionResetError:
                is_open = False
        assert not is_open


def test_a_connection_that_is_used_again_and_again_is_kept() -> None:
    desk = FakeDesk(metrics_body=b"x" * BIG + b"ok\n")
    with a_site(desk, limits=QUICK) as site, site.connect() as steady:
        start_s = time.monotonic()
        for path in (b"/metrics", *[b"/-/healthy"] * 1_000_000):
            steady.sendall(b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % path)
            answer = b""
            while not answer.endswith(b"ok\n"):
                piece = steady.recv(65_536)
                assert piece
                answer = answer[-2:] + piece
            if time.monotonic() - start_s > 3 * QUICK.request_s:
                break


def test_a_request_that_takes_long_to_answer_is_not_cut_off() -> None:
    is_released = threading.Event()
    with a_site(FakeDesk(on_call=lambda: is_released.wait(3 * QUICK.request_s)), limits=QUICK) as site:
        assert site.get("/metrics").status_code == 200


def test_who_does_not_read_the_answer_is_cut_off() -> None:
    with a_site(FakeDesk(metrics_body=b"x" * BIG), limits=QUICK) as site, site.connect() as deaf:
        deaf.sendall(GET_METRICS + b"\r\n")
        server = site.server._server
        assert server is not None
        connections = server.server_state.connections
        wait_until(lambda: len(connections) == 1)
        wait_until(lambda: not connections)
        assert len(read_all(deaf)) < BIG


def wait_until(is_so: Callable[[], object]) -> None:
    end_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end_s
        threading.Event().wait(0.01)


# --- start and stop --------------------------------------------------------------------------------------------


def test_it_listens_on_ipv6_too() -> None:
    with a_site(listen="[::1]:0") as site:
        assert site.address[0] == "::1"
        assert site.get("/metrics").status_code == 200


def test_a_taken_port_is_told_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InputError, match=f"^web.listen {listen}: can't be had: Address already in use$"):
            WebServer(FakeDesk(), Web.model_validate({"listen": listen})).start()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_told(host: str) -> None:
    with pytest.raises(InputError, match=f"web.listen {host}:0: can't be had: [A-Z]"):
        WebServer(FakeDesk(), Web.model_validate({"listen": f"{host}:0"})).start()


def test_after_a_stop_the_port_is_free_and_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    listen = LOCAL
    for _ in range(3):
        with a_site(full_desk(), listen=listen) as site:
            assert {site.get(path).status_code for path in READS} == {200}
            site.server.stop(5)  # it closes first: its side of the connection lingers in the kernel
            listen = f"127.0.0.1:{site.address[1]}"
    wait_until(lambda: set(threading.enumerate()) <= before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(site.address)


def test_a_stop_waits_for_no_idle_connection() -> None:
    with a_site() as site, site.connect() as idle, site.connect() as begun:
        begun.sendall(GET_METRICS)
        assert site.get("/metrics").status_code == 200
        start_s = time.monotonic()
        site.server.stop(5)
        assert time.monotonic() - start_s < 1
        assert (read_all(idle), read_all(begun)) == (b"", b"")


def test_a_stop_lets_a_request_in_flight_end() -> None:
    is_asked, is_over = threading.Event(), threading.Event()

    def answer_slowly() -> None:
        is_asked.set()
        is_over.wait(0.5)

    with a_site(FakeDesk(on_call=answer_slowly)) as site, site.connect() as asker:
        asker.sendall(GET_METRICS + b"\r\n")
        assert is_asked.wait(10)
        site.server.stop(5)
        assert _is_refused(site.address)
        assert read_all(asker).startswith(b"HTTP/1.1 200 ")


def _is_refused(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_request_that_hangs_can_t_hold_up_the_stop() -> None:
    is_asked, is_released = threading.Event(), threading.Event()

    def hang() -> None:
        is_asked.set()
        is_released.wait(20)

    with a_site(FakeDesk(on_call=hang)) as site, site.connect() as asker:
        asker.sendall(GET_METRICS + b"\r\n")
        assert is_asked.wait(10)
        start_s = time.monotonic()
        site.server.stop(0.5)
        assert time.monotonic() - start_s < 1
        assert _is_refused(site.address)
        is_released.set()


def test_a_server_that_never_started_can_be_stopped() -> None:
    WebServer(FakeDesk(), Web()).stop(1)


def test_a_bug_in_an_endpoint_is_a_500_with_its_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with a_site(FakeDesk(past=FakePast(fault=ZeroDivisionError("a bug")))) as site:
        answer = site.get("/api/v1/runs")
        assert (answer.status_code, "a bug" in answer.text) == (500, False)
    assert "ZeroDivisionError" in caplog.text
