"""Requests of strangers and of people with a token who send what no client of ours sends."""

import http.client
import io
import json
import socket
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import select
from sqlmodel import SQLModel

from orchestrator.api.open_connections import STRANGERS_PER_ADDRESS_MAX
from orchestrator.api.open_streams import STREAMS_PER_PERSON_MAX
from orchestrator.api.request_places import ASKED_PER_PERSON_MAX
from orchestrator.api.serve import IDLE_TIMEOUT_S
from orchestrator.api.service_routes import BODY_GRACE_S
from orchestrator.app.manage_tokens import add_token, revoke_token
from orchestrator.app.operation import Role, Transfer
from orchestrator.app.remote.operation_types import OperationTypes, load_operations, types_of
from tests.api.conftest import ApiLab
from tests.farm.conftest import wait_for

STREAM = "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n"
POST = "POST /v1/operations/{} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n"
# Arguments that an operation of its role would accept.
ARGUMENTS: dict[str, Any] = {
    "address": "127.0.0.1",
    "base": "small",
    "candidate": "small",
    "code": "123456",
    "days": 1,
    "digest": "0" * 64,
    "host": "bench-1",
    "hours": 1,
    "limit": 1,
    "name": "small",
    "person": "me",
    "prefix": "tr-",
    "priority": 50,
    "reason": "x",
    "role": "admin",
    "serial": "VM16T0001",
    "sizes": [64],
    "sweep": "small",
    "target": "x",
    "text": "farm: 1",
    "texts": ["farm: 1"],
    "token": "tk-00000000",
}


def ask(served: ApiLab, name: str, body: bytes, secret: str) -> tuple[int, dict[str, Any]]:
    """Call an operation; return the status and the error."""
    connection = http.client.HTTPConnection(*served.address, timeout=120)
    try:
        connection.request("POST", name, body, {"Authorization": f"Bearer {secret}"})
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    return response.status, {} if response.status == 200 else json.loads(content)["error"]


def stored_rows(served: ApiLab) -> dict[str, list[Any]]:
    """Return all rows of the store."""
    with served.here() as lab, lab.store.read() as connection:
        tables = SQLModel.metadata.sorted_tables
        return {table.name: list(connection.execute(select(table))) for table in tables}


def calls(name: str) -> tuple[str, bytes]:
    """Return the path and the body of a call with plausible arguments."""
    types = types_of(load_operations()[name].function)
    arguments = json.dumps({key: ARGUMENTS[key] for key in types.required if key in ARGUMENTS})
    if types.transfer is not None and types.transfer[1] is Transfer.UPLOAD:
        return f"/v1/operations/{name}?arguments={quote(arguments)}", b"PK"
    return f"/v1/operations/{name}", arguments.encode()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_no_operation_above_a_role_is_called(served: ApiLab, role: Role) -> None:
    before, refused = stored_rows(served), 0
    for name, called in load_operations().items():
        if not role.includes(called.role):
            status, error = ask(served, *calls(name), served.tokens[role])
            assert (status, error["kind"]) == (403, "not_permitted"), name
            refused += 1
    assert refused >= 8
    assert stored_rows(served) == before


ROUTES = ("/openapi.json", "/v1/events?sweep=x", "/v1/sweeps/small/figures.nothing")
NOBODY = "x" * 43  # a secret that no token has


def expected_status(role: Role | None, needed: Role) -> int:
    """Return what a call with one unknown argument is answered with."""
    if role is None:
        return 401
    return 400 if role.includes(needed) else 403


@pytest.mark.slow
def test_every_operation_answers_each_role_as_declared(served: ApiLab) -> None:
    before, answers = stored_rows(served), Counter[int]()
    connection = http.client.HTTPConnection(*served.address, timeout=120)
    for name, called in load_operations().items():
        for role in (None, *Role):
            status = expected_status(role, called.role)
            path, body = calls(name)
            if status == 400:  # refused for its arguments: nothing is done
                path, body = f"/v1/operations/{name}?arguments=[]", b"[]"
            secret = served.tokens[role] if role else NOBODY
            connection.request("POST", path, body, {"Authorization": f"Bearer {secret}"})
            response = connection.getresponse()
            error = json.loads(response.read())["error"]
            assert (response.status, bool(error["text"])) == (status, True), (name, role)
            answers[status] += 1
    connection.close()
    assert answers[401] == len(load_operations())
    assert min(answers[400], answers[403]) > 40
    assert stored_rows(served) == before


def test_no_other_route_answers_without_a_token(served: ApiLab) -> None:
    for path in ROUTES:
        connection = http.client.HTTPConnection(*served.address, timeout=120)
        for header in ({}, {"Authorization": f"Bearer {NOBODY}"}, {"Authorization": "Basic eDp4"}):
            connection.request("GET", path, headers=header)
            response = connection.getresponse()
            response.read()
            assert response.status == 401, (path, header)
        connection.close()


@pytest.mark.slow
def test_what_viewers_may_call_changes_nothing(served: ApiLab) -> None:
    before = stored_rows(served)
    for name, called in load_operations().items():
        assert ask(served, *calls(name), "x" * 43)[0] == 401, name
        if called.role is Role.VIEWER and not called.changes:
            assert ask(served, *calls(name), served.tokens[Role.VIEWER])[0] < 500, name
    assert stored_rows(served) == before


HOSTILE = {
    "list_audit": ({"limit": -1}, {"limit": 10**30}, {"limit": "1" * 400}, {"target": "\0"}),
    "list_trials": ({"sweep": "small", "limit": -1}, {"sweep": "small", "limit": 2**63}),
    "plan_sweep": ({"text": "farm: 1\nx: {\0}"},),
    "read_events": (
        *({"cursor": "abc"}, {"cursor": "1-1-1"}, {"cursor": "9" * 30 + "-0"}, {"latest": -5}),
        *({"cursor": "0-0", "wait_s": "NaN"}, {"cursor": "0-0", "wait_s": -1}),
    ),
    "reserve_phone": (
        {"serial": "VM16T0001", "hours": hours, "dry_run": True} for hours in (1e308, -1, "inf")
    ),
    "set_sweep_priority": (
        {"name": "small", "priority": level, "dry_run": True} for level in (-1, 101, 10**9, 10**30)
    ),
}


def test_values_out_of_range_are_refused(served: ApiLab) -> None:
    for name, several in HOSTILE.items():
        for arguments in several:
            path, body = f"/v1/operations/{name}", json.dumps(arguments).encode()
            status, error = ask(served, path, body, served.tokens[Role.ADMIN])
            assert status in (200, 400), (name, arguments, error)
            assert name not in ("reserve_phone", "set_sweep_priority") or status == 400, arguments
    lone = b'{"text": "x", "files": {"a.yaml": "\\ud800"}}'
    for body in (lone, b'{"name": NaN}', b'{"name": 1e999}'):
        assert ask(served, "/v1/operations/plan_sweep", body, served.tokens[Role.ADMIN])[0] == 400
    for path in ("/v1/sweeps/%00/figures.csv", "/v1/sweeps/small/figures.csv?include_invalid=%00"):
        assert ask(served, path, b"", served.tokens[Role.ADMIN])[0] == 400


ABSURD = (-1, 0, 1e308, 10**30, "nan", "-inf")


def absurd_arguments(types: OperationTypes) -> Iterator[dict[str, Any]]:
    """Yield plausible arguments with an absurd value in the place of one number."""
    plausible = {key: ARGUMENTS[key] for key in types.required if key in ARGUMENTS}
    plausible |= {"dry_run": True} if "dry_run" in types.arguments else {}
    for name, adapter in types.arguments.items():
        for path in number_paths(schema := adapter.json_schema(), schema.get("$defs", {})):
            for value in ABSURD:
                content: Any = value
                for key in reversed(path):
                    content = [content] if key is None else {**NESTED, key: content}
                yield {**plausible, name: content}


NESTED = {"sweep": "small"}  # required within an argument


def number_paths(schema: Any, parts: Any) -> Iterator[tuple[str | None, ...]]:
    """Yield the way to every number of a schema; None stands for an element of a list."""
    schema = parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if schema.get("type") in ("integer", "number"):
        yield ()
    for inner in schema.get("anyOf", ()):
        yield from number_paths(inner, parts)
    for key, inner in schema.get("properties", {}).items():
        yield from ((key, *path) for path in number_paths(inner, parts))
    if isinstance(items := schema.get("items"), dict):
        yield from ((None, *path) for path in number_paths(items, parts))


def test_no_number_is_a_bug(served: ApiLab) -> None:
    asked = 0
    for name, called in load_operations().items():
        types = types_of(called.function)
        for arguments in absurd_arguments(types):
            body = json.dumps(arguments).encode()
            status, error = ask(served, f"/v1/operations/{name}", body, served.tokens[Role.ADMIN])
            assert status in (200, 400, 404, 409), (name, arguments, error)
            asked += 1
    assert asked > 60


def hostile_archives() -> Iterator[bytes]:
    """Yield archives whose members cannot be read."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", '{"format": 1, "files": {}}')
    content = stream.getvalue()
    entry = content.index(b"PK\x01\x02")
    encrypted, damaged, unknown = (bytearray(content) for _ in range(3))
    encrypted[6] |= 1
    encrypted[entry + 8] |= 1
    damaged[45] ^= 0xFF  # of the compressed data
    unknown[8] = unknown[entry + 10] = 99
    yield from map(bytes, (encrypted, damaged, unknown))


def test_an_archive_that_cannot_be_read_is_refused(served: ApiLab) -> None:
    for content in hostile_archives():
        path = "/v1/operations/import_bundle"
        status, error = ask(served, path, content, served.tokens[Role.ADMIN])
        assert (status, "bundle" in error["text"]) == (400, True), error


def test_streams_are_limited_and_end_with_their_token(served: ApiLab) -> None:
    with served.here() as lab, ExitStack() as links:
        token = add_token(lab, "many streams", Role.VIEWER, 1)
        opened, heads = [], []
        for _ in range(STREAMS_PER_PERSON_MAX + 1):
            link = links.enter_context(socket.create_connection(served.address, timeout=120))
            link.sendall(STREAM.format(token.secret).encode())
            heads.append(link.recv(4096).split()[1])
            opened.append(link)
        assert heads == [b"200"] * STREAMS_PER_PERSON_MAX + [b"503"]
        answer = ask(served, "/v1/operations/list_sweeps", b"", served.tokens[Role.VIEWER])
        assert answer[0] == 200
        revoke_token(lab, token.token.id)
        assert ask(served, "/v1/operations/list_sweeps", b"", token.secret)[0] == 401
        for link in opened[:-1]:
            received = b""
            while b"event: ended" not in received:
                received += link.recv(4096)


def test_streams_that_begin_at_once_are_counted_exactly(served: ApiLab) -> None:
    with served.here() as lab, ExitStack() as links:
        secret = add_token(lab, "streams at once", Role.VIEWER, 1).secret
        for turn in range(2):  # closed streams give their places back
            opened = [
                links.enter_context(socket.create_connection(served.address, timeout=120))
                for _ in range(STREAMS_PER_PERSON_MAX + 20)
            ]
            for link in opened:
                link.sendall(STREAM.format(secret).encode())
            heads = Counter(link.recv(4096).split()[1] for link in opened)
            assert heads == {b"200": STREAMS_PER_PERSON_MAX, b"503": 20}, turn
            for link in opened:
                link.close()
            wait_for(lambda: stream_status(served, secret) == b"200", "the places are free")


def stream_status(served: ApiLab, secret: str) -> bytes:
    """Open a stream and close it; return its status."""
    with socket.create_connection(served.address, timeout=120) as link:
        link.sendall(STREAM.format(secret).encode())
        return link.recv(4096).split()[1]


def test_connections_without_a_token_take_no_place_of_others(served: ApiLab) -> None:
    with ExitStack() as links:
        held = [
            links.enter_context(socket.create_connection(served.address, timeout=120))
            for _ in range(STRANGERS_PER_ADDRESS_MAX + 100)
        ]
        for link in held[::2]:
            with suppress(OSError):  # it was closed
                link.sendall(b"GET / HTTP/1.1\r\nHo")
        for _ in range(12):
            answer = ask(served, "/v1/operations/list_sweeps", b"", served.tokens[Role.VIEWER])
            assert answer[0] == 200


def test_many_requests_of_one_person_wait_and_others_are_answered(served: ApiLab) -> None:
    """More than may run, and more than may wait; nothing is a bug."""
    with served.here() as lab:
        secret = add_token(lab, "many reports", Role.VIEWER, 1).secret
    asked = ASKED_PER_PERSON_MAX + 5
    body = json.dumps({"name": "small"}).encode()
    with ThreadPoolExecutor(asked) as threads:
        path = "/v1/operations/prepare_report"
        reports = [threads.submit(ask, served, path, body, secret) for _ in range(asked)]
        for _ in range(5):
            answer = ask(served, "/v1/operations/list_sweeps", b"", served.tokens[Role.VIEWER])
            assert answer[0] == 200
        answers = [report.result() for report in reports]
    found = Counter(status for status, _ in answers)
    assert set(found) <= {200, 503}
    assert found[200] > 0
    assert all("send" in error["text"] for status, error in answers if status == 503)


@pytest.mark.slow
def test_a_request_without_end_gives_its_connection_back(served: ApiLab) -> None:
    head = POST.format("show_sweep", served.tokens[Role.ADMIN])
    cases = {
        "": IDLE_TIMEOUT_S,
        "GET / HTTP/1.1\r\nHo": IDLE_TIMEOUT_S,
        head + "Content-Length: 100000\r\n\r\n": BODY_GRACE_S,
        head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n": BODY_GRACE_S,
    }
    with ExitStack() as links:
        opened = []
        for text in cases:
            link = links.enter_context(socket.create_connection(served.address, timeout=60))
            link.sendall(text.encode())
            opened.append(link)
        started = time.monotonic()
        answers = [link.recv(4096) for link in opened]
        assert max(cases.values()) - 2 < time.monotonic() - started < max(cases.values()) + 120
    assert answers[:2] == [b"", b""]
    assert all(b" 504 " in answer for answer in answers[2:])
