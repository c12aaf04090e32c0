"""The page of a lab: a link logs in once, the cookie opens the page only, and nothing changes."""

import html
import http.client
import json
import re
from typing import Any

import pytest

from orchestrator.app.lab_changes import apply_change
from orchestrator.app.manage_tokens import add_login_link, list_tokens, revoke_token
from orchestrator.app.operation import Role
from tests.api.conftest import ApiLab
from tests.farm.conftest import wait_for


def ask(served: ApiLab, path: str, method: str = "GET", **headers: str) -> Any:
    """Send a request; return the response with its body read."""
    connection = http.client.HTTPConnection(*served.address, timeout=120)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    response.body = b"" if "events" in path else response.read()  # type: ignore[attr-defined]
    return response


@pytest.fixture(scope="module")
def session(served: ApiLab) -> str:
    """The cookie of a person who opened a link."""
    with served.here() as lab:
        url = add_login_link(lab, "anna").url
    response = ask(served, url.removeprefix(served.url))
    assert response.status == 200
    cookie = str(response.headers["Set-Cookie"])
    for flag in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert flag in cookie
    return cookie.partition(";")[0]


def test_a_link_works_once_and_its_code_is_not_a_token(served: ApiLab) -> None:
    with served.here() as lab:
        path = add_login_link(lab, "bea").url.removeprefix(served.url)
    code = path.rpartition("/")[2]
    refused = ask(served, "/openapi.json", Authorization=f"Bearer {code}")
    assert refused.status == 401
    assert ask(served, "/", Cookie=f"farm_session={code}").status == 401
    assert [ask(served, path).status for _ in range(2)] == [200, 401]
    again = ask(served, path)
    assert "Set-Cookie" not in again.headers
    assert "already used" in again.body.decode()


def test_a_used_link_is_no_error_for_a_person_who_is_logged_in(
    served: ApiLab, session: str
) -> None:
    with served.here() as lab:
        path = add_login_link(lab, "anna").url.removeprefix(served.url)
    assert [ask(served, path).status for _ in range(2)] == [200, 401]
    again = ask(served, path, Cookie=session)
    assert (again.status, "Set-Cookie" in again.headers) == (200, False)


def test_the_description_of_the_api_is_a_page_without_scripts(served: ApiLab, session: str) -> None:
    assert ask(served, "/docs").status == 401
    page = ask(served, "/docs", Cookie=session).body.decode()
    assert "GET /v1/sweeps</code> List all sweeps, newest first." in page
    assert "<script" not in page
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r' id="([^"]+)"', page))


def test_the_cookie_opens_the_page_and_no_operation(served: ApiLab, session: str) -> None:
    page = ask(served, "/", Cookie=session)
    assert page.status == 200
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert re.findall(rb"https?://|<script>|onclick|style=", page.body) == []
    for path in ("/v1/operations/list_sweeps", "/v1/operations/pause_sweep"):
        assert ask(served, path, "POST", Cookie=session).status == 401
    assert ask(served, "/openapi.json", Cookie=session).status == 401
    secret = session.partition("=")[2]
    assert ask(served, "/openapi.json", Authorization=f"Bearer {secret}").status == 401
    token = served.tokens[Role.VIEWER]
    assert ask(served, "/", Cookie=f"farm_session={token}").status == 401
    assert ask(served, "/", "POST", Cookie=session).status == 405


@pytest.mark.parametrize(
    "path", ["/", "/page/events", "/page/phones/x", "/page/reports/small", "/page/sweeps/small"]
)
def test_without_a_session_there_is_no_data(served: ApiLab, path: str) -> None:
    refused = ask(served, path)
    assert refused.status == 401
    assert "small" not in refused.body.decode()


def messages(served: ApiLab, session: str, count: int) -> list[dict[str, Any]]:
    """Read the first messages of the stream."""
    response = ask(served, "/page/events", Cookie=session)
    assert response.headers["Content-Type"].startswith("text/event-stream")
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line = response.readline().decode()
        if line.startswith("data: "):
            found.append(json.loads(line[6:]))
    response.close()
    return found


def test_the_stream_sends_all_and_then_what_changed(served: ApiLab, session: str) -> None:
    first, second = messages(served, session, 2)
    content = apply_change({}, first)
    (sweep,) = (item for item in content["sweeps"] if item["name"] == "small")
    assert (sweep["state"], sweep["done"], sweep["total"]) == ("finished", 9, 9)
    assert set(content["phones"]) >= {"VM16T0001", "VMI90001"}
    assert content["problems"][0][0].startswith("AWAY")
    assert second.keys() <= {"age"}
    assert 0 <= apply_change(content, second)["age"] < 5


def test_a_report_is_made_while_its_page_says_so(served: ApiLab, session: str) -> None:
    answers: list[Any] = []

    def is_made() -> bool:
        answers.append(ask(served, "/page/reports/small", Cookie=session))
        return bool(answers[-1].status == 200)

    wait_for(is_made, "the report is made")
    for waiting in answers[:-1]:
        assert waiting.status == 202
        assert b"Making the report from 9 runs: " in waiting.body
        assert b'http-equiv="refresh"' in waiting.body
    report = answers[-1]
    assert b"<title>small" in report.body
    policy = report.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert policy.partition("; frame")[0] in html.unescape(report.body.decode())
    assert ask(served, "/page/reports/small", Cookie=session).body == report.body
    assert ask(served, "/page/reports/none", Cookie=session).status == 400


def test_a_sweep_a_phone_and_a_trial_have_addresses(served: ApiLab, session: str) -> None:
    def read(path: str) -> Any:
        page = ask(served, f"/{path}", Cookie=session)
        assert b"live_page.js" in page.body
        return json.loads(ask(served, f"/page/{path}", Cookie=session).body)

    sweep = read("sweeps/small")
    assert sweep["sweep"]["done"] == 9
    trial = next(line for line in sweep["trials"] if line[0] == sweep["trials"][0][0])
    assert re.match(r"\d.* ms/step", trial[3])
    assert len(read(f"trials/{trial[0]}")["attempts"]) >= 1
    phone = read("phones/VMI90001")
    assert set(phone["curves"]) == {"temperature, °C", "clock, GHz", "power, W"}
    assert ["serial", "VMI90001"] in phone["facts"]
    assert ask(served, "/page/trials/none", Cookie=session).status == 400


def test_a_person_who_looks_may_write_notes_and_nothing_else(served: ApiLab, session: str) -> None:
    def write(text: str, **headers: str) -> int:
        connection = http.client.HTTPConnection(*served.address, timeout=120)
        path, body = "/page/sweeps/small/notes", text.encode()
        connection.request("POST", path, body, {"Cookie": session, **headers})
        return int(connection.getresponse().status)

    hostile = "<img src=x>\x1b[2J \x00\u202e the window was open"
    assert [write(hostile), write(""), write("x" * 1001), write("x" * 9000)] == [200, 400, 400, 413]
    assert write("x", Origin="https://evil.example") == 403
    assert write("x", Cookie="") == 401
    (note,) = json.loads(ask(served, "/page/sweeps/small", Cookie=session).body)["notes"]
    assert note[1] == "anna"
    assert note[2].startswith("<img src=x>")
    assert note[2].endswith("the window was open")
    assert not re.search("[\x00-\x1f\u202e]", note[2])
    listed = served.run("lab", "audit", "--json", role=Role.VIEWER)
    assert "the window was open" in listed.stdout


def test_a_revoked_session_is_closed(served: ApiLab) -> None:
    with served.here() as lab:
        path = add_login_link(lab, "carl").url.removeprefix(served.url)
        cookie = str(ask(served, path).headers["Set-Cookie"]).partition(";")[0]
        newest = next(item for item in list_tokens(lab) if item.person == "carl" and not item.once)
        assert newest.role == Role.VIEWER
        revoke_token(lab, newest.id)
    assert ask(served, "/", Cookie=cookie).status == 401
    listed = served.run("lab", "token", "list")
    assert "login link" in listed.stdout
