"""The API: every command works with a token alone, and requests without one are refused."""

import http.client
import io
import json
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from sqlalchemy import update

from orchestrator.api.addresses import reading_addresses, reads
from orchestrator.app import control_sweeps, export_results, run_study
from orchestrator.app.app_errors import ApiDown
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.manage_tokens import add_token, list_tokens
from orchestrator.app.operation import OPERATIONS, Role
from orchestrator.app.remote.api_client import RemoteLab
from orchestrator.app.remote.operation_types import load_operations, types_of
from orchestrator.commands.exit_codes import exit_code
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store.tables import token
from orchestrator.study.claim_table import evaluate_claims
from orchestrator.study.evidence import Observation, StudyEvidence
from orchestrator.supervisor.process import ServiceProcess, service_command, stop_all
from tests.analysis.builders import MEASURED
from tests.api.conftest import ApiLab, free_port, is_open, store_results
from tests.farm.conftest import wait_for
from workloads.lab.settings import Lab
from workloads.protocol.faults import FarmError
from workloads.protocol.messages import Event, EventKind

READING = [
    ("sweep", "list"),
    ("sweep", "list", "--json"),
    ("sweep", "show", "small"),
    ("sweep", "show", "small", "--json"),
    ("trial", "list", "small"),
    ("phone", "list", "--json"),
    ("phone", "show", "VM16"),
    ("host", "list"),
    ("lab", "audit", "--json"),
    ("compare", "small:phone=VM16T0001", "small:phone=VMI90001", "--json"),
    ("compare", "small", "--split-half"),
    ("compare", "--over-time", "--json"),
    ("select", "small", "-k", "1", "--workload", "mlp-4"),
    ("export", "small", "-o", "-"),
    ("export", "small", "--table", "samples", "--format", "jsonl", "-o", "-"),
    ("export", "small", "--format", "trace", "-o", "-"),
    ("export", "small", "--format", "bundle", "-o", "-"),
    ("sweep", "plan", "examples/smoke.yaml", "--json"),
    ("watch", "small", "--once", "--size", "100x30"),
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_prints_the_same_with_a_token(served: ApiLab, words: tuple[str, ...]) -> None:
    here, there = served.run(*words), served.run(*words, role=Role.VIEWER)
    assert here.exception is None, here.exception
    assert there.exception is None, there.exception
    pattern = rb"\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d\S*|lab|elsewhere"  # times, names of labs
    if words[0] in ("watch", "host"):  # they show the time of day and ages
        pattern += rb"|[\d.]+"
    assert here.stdout_bytes
    assert re.sub(pattern, b"", there.stdout_bytes) == re.sub(pattern, b"", here.stdout_bytes)
    assert not (served.lab.root / "elsewhere").exists(), "the client used a lab folder"


def test_an_operator_submits_and_steers_and_the_audit_names_the_person(served: ApiLab) -> None:
    text = Path("examples/smoke.yaml").read_text()
    submitted = served.run("sweep", "submit", "-", role=Role.OPERATOR, text=text)
    assert submitted.exception is None, submitted.exception
    assert "runs queued" in submitted.stdout
    for words in (("pause", "smoke"), ("priority", "smoke", "70"), ("cancel", "smoke", "--yes")):
        changed = served.run("sweep", *words, role=Role.OPERATOR)
        assert changed.exception is None, changed.exception
    refused = served.run("sweep", "remove", "smoke", "--yes", role=Role.OPERATOR)
    assert_error(refused.exception, 11, "a operator is a operator, but this needs the role admin")
    removed = served.run("sweep", "remove", "smoke", "--yes", role=Role.ADMIN)
    assert removed.exception is None, removed.exception
    with served.here() as lab:
        entries = control_sweeps.list_audit(lab, limit=5)
    who = [(entry.action, entry.actor) for entry in entries]
    steered = ["cancel", "set-priority", "pause", "submit"]
    assert who == [("remove", "a admin"), *((action, "a operator") for action in steered)]


def assert_error(error: object, code: int, text: str) -> None:
    """Check that an error is one sentence with an exit code."""
    assert isinstance(error, FarmError), error
    assert exit_code(error) == code, error
    assert re.search(text, str(error)), error
    assert "\n" not in str(error)


def test_a_viewer_can_look_and_cannot_touch(served: ApiLab, tmp_path: Path) -> None:
    with served.here() as lab:
        before = control_sweeps.list_audit(lab)
    bundle = tmp_path / "b.zip"
    bundle.write_bytes(b"PK")
    for words in (
        ("sweep", "submit", "examples/smoke.yaml"),
        ("sweep", "pause", "small"),
        ("sweep", "remove", "small", "--yes"),
        ("phone", "quarantine", "VM16", "--why", "x"),
        ("phone", "reserve", "VM16"),
        ("host", "drain", "bench-1"),
        ("lab", "token", "add", "me", "--role", "admin"),
        ("lab", "token", "list"),
        ("store", "prune"),
        ("import", bundle),
        ("workload", "add", bundle),
    ):
        refused = served.run(*words, role=Role.VIEWER)
        assert_error(refused.exception, 11, "needs the role (operator|admin)")
    with served.here() as lab:
        assert control_sweeps.list_audit(lab) == before


READING_VERBS = {
    *(
        "answer",
        "assess",
        "check",
        "compare",
        "count",
        "draw",
        "find",
        "has",
        "list",
        "plan",
        "prepare",
    ),
    *("read", "show", "write"),
}
NOUNS = {"all_runs", "client_states", "result_files", "stored_study_sweeps"}


def test_an_operation_that_is_open_to_viewers_begins_with_a_verb_of_reading() -> None:
    for name, called in load_operations().items():
        reads = name.split("_")[0] in READING_VERBS or name in NOUNS
        assert called.role is not Role.VIEWER or reads != called.changes, f"{name} is open"
    changing = [each.name for each in OPERATIONS.values() if each.changes]
    assert [name for name in changing if OPERATIONS[name].role is Role.VIEWER] == ["add_note"]


def test_a_token_that_is_not_valid_is_refused(served: ApiLab) -> None:
    with served.here() as lab:
        ended = add_token(lab, "bert", Role.ADMIN, 1)
        revoked = add_token(lab, "carl", Role.ADMIN, 1)
        past = datetime.now(UTC) - timedelta(seconds=1)
        with lab.store.write() as connection:
            same = token.c.id == ended.token.id
            connection.execute(update(token).where(same).values(expires_at=past))
            stored = connection.exec_driver_sql("SELECT * FROM token").all()
        assert served.run("lab", "token", "revoke", revoked.token.id).exception is None
        assert not any(secret in str(stored) for secret in served.tokens.values())
        assert {item.role for item in list_tokens(lab)} == {"viewer", "operator", "admin"}
    cases = {
        "": "has no token; set FARM_TOKEN",
        "wrong": "the token is unknown",
        "ü": "has characters that no token has",
        "a\nHost: x": "has characters that no token has",
        ended.secret: "expired at",
        revoked.secret: "was revoked",
    }
    for secret, text in cases.items():
        served.tokens[Role.VIEWER], good = secret, served.tokens[Role.VIEWER]
        result = served.run("sweep", "list", role=Role.VIEWER)
        served.tokens[Role.VIEWER] = good
        assert_error(result.exception, 10, text)


def send(
    served: ApiLab, path: str, body: Any = b"{}", method: str = "POST", **headers: str
) -> tuple[int, bytes]:
    """Send a request with a viewer's token; a header may replace it."""
    connection = http.client.HTTPConnection(*served.address, timeout=120)
    given = {"Authorization": f"Bearer {served.tokens[Role.ADMIN]}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, given)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


FOREIGN_HOSTS = (
    *("farm.evil.example", "127.0.0.1.evil.example:8400", "", "[", "10.0.0.1", "[::1].evil.com"),
    *("127.0.0.1:8400, evil", "evil@127.0.0.1", "127.0.0.1/evil", "127.0.0.1#", "127.0.0.1?x"),
    *("127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", "::1", "[::1", "[::1%25lo]"),
    *("[localhost]", "127.1", "2130706433", "[::ffff:127.0.0.1]", "localhost.evil"),
)


def test_a_web_page_cannot_use_the_api(served: ApiLab) -> None:
    path = "/v1/operations/list_sweeps"
    assert send(served, path)[0] == 200
    for name in FOREIGN_HOSTS:
        assert send(served, path, Host=name)[0] in (400, 421), name
    for name in ("localhost", "LOCALHOST:1", "127.0.0.1:8400", "[::1]", "[0:0::1]:65535"):
        assert send(served, path, Host=name)[0] == 200, name
    for origin in (*(f"http://{name}" for name in FOREIGN_HOSTS), "null", "x", "127.0.0.1"):
        status, answer = send(served, path, Origin=origin)
        assert (status, json.loads(answer)["error"]["kind"]) == (403, "not_permitted"), origin
    assert send(served, path, Origin=served.url)[0] == 200
    assert send(served, path, Authorization="Basic eDp5")[0] == 401
    assert send(served, "/openapi.json", None, "GET", Authorization="")[0] == 401


def test_what_reads_answers_get_and_errors_are_json(served: ApiLab) -> None:
    def get(path: str) -> tuple[int, Any]:
        status, answer = send(served, path, None, "GET")
        return status, json.loads(answer)

    short = {path for path in reading_addresses(load_operations().values()) if "{" not in path}
    for name in ("status", "sweeps", "phones", "hosts", "notices", "audit", "trends"):
        assert f"/v1/{name}" in short
        assert get(f"/v1/{name}")[0] == 200, name
    for called in filter(reads, load_operations().values()):
        assert f"/v1/operations/{called.name}" in short
    assert [item["name"] for item in get("/v1/sweeps")[1]] == ["small"]
    assert get("/v1/sweeps/small")[1]["summary"]["name"] == "small"
    (trial,) = get("/v1/sweeps/small/trials?limit=1&phone=VMI9")[1]
    assert get(f"/v1/trials/{trial['id']}")[1]["summary"]["phone"] == "VMI90001"
    request = '{"metric":"step_ms"}'
    compared = get(f"/v1/operations/check_split_half?sweep=small&request={request}")
    assert compared[0] == 200
    for path, status, text in (
        ("/v1/sweep", 404, "there is no /v1/sweep here; /docs lists every address"),
        ("/v1/operations/pause_sweep", 405, "does not take GET"),
        ("/v1/sweeps/none", 400, "none"),
        ("/v1/sweeps/small/trials?limit=x", 400, "argument limit is invalid"),
        ("/v1/phones?serial=1", 400, "unknown argument serial; it takes: selector"),
    ):
        found = get(path)
        assert (found[0], text in found[1]["error"]["text"]) == (status, True), found


def test_what_is_no_http_gets_an_error_as_json(served: ApiLab) -> None:
    with socket.create_connection(served.address, timeout=120) as link:
        link.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        received = b""
        while piece := link.recv(4096):
            received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["kind"] == "invalid_request"


HOSTILE_BODIES = [
    b"",
    b"[]",
    b"null",
    b'"x"',
    b"{",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"name": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    b'{"name": {"a": 1}}',
    b'{"name": null}',
    b'{"name": 1e999}',
    b'{"nome": "small"}',
    b'{"name": "small", "lab": 1}',
    b'{"name": "\\u0000\\ud800"}',
    b'{"name": "' + b"x" * 10**6 + b'"}',
    b'{"text": "farm: 1", "files": [1]}',
    b'{"name": "small", "request": {"format": "../x", "table": "figures"}}',
    b'{"digest": "../../etc/passwd"}',
]


def test_hostile_bodies_are_answered_with_one_sentence(served: ApiLab) -> None:
    for name in ("show_sweep", "pause_sweep", "plan_sweep", "write_export", "has_file"):
        for body in HOSTILE_BODIES:
            status, answer = send(served, f"/v1/operations/{name}", body)
            if status != 200:
                error = json.loads(answer)["error"]
                assert 400 <= status < 500, (name, body[:40], error)
                assert "\n" not in error["text"]
    assert served.process.alive
    assert send(served, "/v1/operations/list_sweeps")[0] == 200


def test_a_body_that_is_too_large_is_refused(served: ApiLab) -> None:
    path = "/v1/operations/show_sweep"
    assert send(served, path, b"{}", Content_Length=str(10**12))[0] == 413

    def endless() -> Any:
        for _ in range(64):
            yield b" " * 2**20

    try:
        status, _ = send(served, path, endless())
    except (ConnectionError, http.client.HTTPException):
        status = 413  # the server closed the connection while we were still sending
    assert status == 413
    upload = "/v1/operations/import_bundle"
    assert send(served, upload, b"0" * 1_000_001)[0] == 413
    status, answer = send(served, upload, b"0" * 999_999)
    assert (status, json.loads(answer)["error"]["kind"]) == (400, "invalid_request")


def test_tables_can_be_read_by_url(served: ApiLab) -> None:
    def get(path: str) -> tuple[bytes, str]:
        headers = {"Authorization": f"Bearer {served.tokens[Role.VIEWER]}"}
        request = urllib.request.Request(f"{served.url}/v1/sweeps/small/{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.read(), response.headers["Content-Disposition"]

    content, name = get("figures.csv")
    assert content == served.run("export", "small", "-o", "-").stdout_bytes
    assert name == 'attachment; filename="small.csv"'
    table = pyarrow.parquet.read_table(io.BytesIO(get("figures.parquet")[0]))
    assert table.num_rows == content.count(b"\n") - 1
    for path in ("figures.exe", "nothing.csv/../x", "figures.trace"):
        with pytest.raises(urllib.error.HTTPError):
            get(path)


def test_progress_comes_as_server_sent_events(served: ApiLab) -> None:
    broker = CentralBroker(served.lab.broker_url)
    with socket.create_connection(served.address, timeout=120) as link:
        secret = served.tokens[Role.VIEWER]
        host = f"127.0.0.1:{served.address[1]}"
        headers = f"Host: {host}\r\nAuthorization: Bearer {secret}\r\n\r\n"
        link.sendall(f"GET /v1/events HTTP/1.1\r\n{headers}".encode())
        received = b""
        while b": connected" not in received:
            received += link.recv(4096)
        event = Event(occurred_at=datetime.now(UTC), kind=EventKind.CONTROL, text="hello")
        broker.publish_event(event)
        while b"hello" not in received:
            received += link.recv(4096)
    assert b"content-type: text/event-stream" in received
    assert b"event: control\ndata: {" in received
    broker.close()


def test_the_description_names_every_operation(served: ApiLab) -> None:
    status, answer = send(served, "/openapi.json", None, "GET")
    described = json.loads(answer)
    assert status == 200
    operations = {path.rpartition("/")[2] for path in described["paths"] if "operations" in path}
    assert operations == set(load_operations())
    text = json.dumps(described)
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert references <= set(described["components"]["schemas"])


def test_files_travel_by_digest(served: ApiLab, tmp_path: Path) -> None:
    file = tmp_path / "engine.sh"
    file.write_text("#!/bin/sh\n")
    first = served.run("workload", "add", file, "--json", role=Role.OPERATOR)
    digest = json.loads(first.stdout)["engine.sh"]
    assert (served.lab.files_folder / digest).read_bytes() == file.read_bytes()
    again = served.run("workload", "add", file, "--json", role=Role.OPERATOR)
    assert again.stdout == first.stdout
    path = f'/v1/operations/store_file?arguments={{"digest":"{"0" * 64}"}}'
    assert send(served, path, b"other")[0] == 400
    assert [item.name for item in served.lab.files_folder.iterdir()] == [digest]


def test_an_api_that_is_away_and_a_port_that_is_taken(served: ApiLab, tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "lab.toml").write_text(f'[api]\nlisten = "{served.lab.settings.api.listen}"\n')
    taken = served.run("service", "api", "--lab", lab)
    assert_error(taken.exception, 7, "the port is in use; set api.listen in lab.toml")
    (lab / "lab.toml").write_text('[api]\nlisten = "0.0.0.0:0"\n')
    opened = served.run("service", "api", "--lab", lab)
    assert_error(opened.exception, 3, "reachable from other computers; set api.cert_file")
    served.url, url = f"http://127.0.0.1:{free_port()}", served.url
    away = served.run("sweep", "list", role=Role.VIEWER)
    wrong = []
    for text in ("ftp://x", "http://", "http://x:99999", "x", "http://[", "https://u:p@"):
        served.url = text
        wrong.append(served.run("sweep", "list", role=Role.VIEWER).exception)
    served.url = url
    assert_error(away.exception, 4, "the API at .* cannot be reached: Connection refused")
    for error in wrong:
        assert_error(error, 2, "FARM_API '.*' is not a URL; write http://HOST:PORT")


def test_what_needs_the_labs_own_host_is_refused_with_that_reason(served: ApiLab) -> None:
    with served.remote() as remote, pytest.raises(FarmError, match="only on a host of the lab"):
        _ = remote.store
    assert isinstance(remote, LabConnection)
    with served.remote() as remote:
        assert export_results.all_runs(remote, "small") == export_results.all_runs(
            served.here(), "small"
        )


def a_stranger(answer: bytes) -> Iterator[str]:
    """Serve the same answer to every request, as a program does that is not the API of a lab."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    link, _ = server.accept()
                    with link:
                        link.recv(65536)
                        link.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "cannot be reached"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "response of .* cannot be read"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n[]", "cannot be reached"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", "is not the API of a lab"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n[]", "is not the API of a lab"),
        (b"HTTP/1.1 302 Go\r\nLocation: http://x\r\nContent-Length: 0\r\n\r\n", "is not the API"),
    ],
)
def test_a_program_that_is_not_the_api_is_named(served: ApiLab, answer: bytes, text: str) -> None:
    for url in a_stranger(answer):
        served.url, right = url, served.url
        result = served.run("sweep", "list", role=Role.VIEWER)
        served.url = right
        assert_error(result.exception, 4, text)


@pytest.mark.slow
def test_the_api_is_verified_over_tls(served: ApiLab, tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made += ["-keyout", str(key), "-out", str(cert)]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(made, check=True, capture_output=True)
    root, port = tmp_path / "lab", free_port()
    root.mkdir()
    settings = f'cert_file = "{cert}"\nkey_file = "{key}"\n'
    (root / "lab.toml").write_text(f'[api]\nlisten = "127.0.0.1:{port}"\n{settings}')
    lab = Lab.read(root, {})
    store_results(lab)
    with LabConnection(lab, "root") as connection:
        secret = add_token(connection, "anna", Role.VIEWER, 1).secret
    command = service_command("service", "api", "--lab", root)
    api = ServiceProcess("api", command, lab.log_file("api"))
    try:
        api.start()
        wait_for(lambda: is_open(("127.0.0.1", port)) or not api.alive, "the API listens")
        url = f"https://127.0.0.1:{port}"
        with LabConnection(lab, "", RemoteLab(url, secret, str(cert))) as trusted:
            assert [item.name for item in control_sweeps.list_sweeps(trusted)] == ["small"]
        unknown = LabConnection(lab, "", RemoteLab(url, secret))
        with pytest.raises(ApiDown, match="certificate verify failed"):
            control_sweeps.list_sweeps(unknown)
    finally:
        stop_all([api])


def test_the_claims_of_every_study_are_the_same_after_their_way_through_the_api() -> None:
    observed = tuple(
        Observation("Meizu 16T", {"batch_size": batch}, "step_ms", (9.0, 10.0, 11.0), MEASURED)
        for batch in (32, 64)
    )
    evidence = StudyEvidence({"Meizu 16T": "Meizu 16T"}, observed, ())
    result = types_of(OPERATIONS["answer_stored_study"].function).result
    for study in run_study.all_studies().values():
        rows = tuple(evaluate_claims(study, evidence))
        answer = run_study.StudyAnswer(study, rows, False, "<html>", ("x",), 1)
        assert result.validate_json(result.dump_json(answer)) == answer
