"""The routes of the API, derived from the registry of operations."""

import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import IO, Any

import anyio
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from orchestrator.api.addresses import operation_path, reading_addresses
from orchestrator.api.api_description import describe_api
from orchestrator.api.event_feeds import READ_INTERVAL_S, SharedFeed
from orchestrator.api.live_page import page_routes
from orchestrator.api.open_connections import OpenConnections
from orchestrator.api.open_streams import TOKEN_CHECK_S
from orchestrator.api.request_guard import LOOPBACK_NAMES, App, RequestGuard
from orchestrator.api.visitors import Visitors
from orchestrator.app.app_errors import (
    ErrorKind,
    NotAuthenticated,
    TimedOut,
    TooMuchData,
    error_kind,
)
from orchestrator.app.enrol_hosts import authority_certificate, enrol_host
from orchestrator.app.export_results import ExportRequest, prepare_export, write_export
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Operation, Role, Transfer
from orchestrator.app.remote.api_client import PIECE_BYTES, RESULT_HEADER
from orchestrator.app.remote.operation_types import (
    FILES_MAX,
    OperationTypes,
    load_operations,
    types_of,
)
from workloads.protocol.faults import FarmError, InvalidRequest
from workloads.text import safe_text

BODY_BYTES_MAX = 16 * 1024**2
ENROL_BYTES_MAX = 16 * 1024
RETRY_AFTER_S = 2  # a place is free, or the store is back
# A body must arrive at this rate, after some seconds for its beginning.
BODY_RATE_MIN, BODY_GRACE_S = 5_000.0, 30.0
MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
TABLE_FORMATS = ("csv", "jsonl", "parquet")
NO_TEXT = b"\\u0000"  # in JSON; PostgreSQL refuses the character


def build_app(lab: LabConnection, connections: OpenConnections) -> App:
    """Return the application that serves a lab."""
    visitors = Visitors(lab, connections)
    service = _ApiService(lab, visitors)
    operations = tuple(load_operations().values())
    routes = [
        *page_routes(lab, visitors),
        Route("/healthz", service.report_health),
        Route("/openapi.json", service.describe),
        Route("/v1/authority", service.send_authority),
        Route("/v1/enrol", service.enrol, methods=["POST"]),
        Route("/v1/events", service.stream_events),
        Route("/v1/sweeps/{sweep}/{table}.{form}", service.send_table),
        *(
            Route(path, service.reader(called))
            for path, called in reading_addresses(operations).items()
        ),
        *(
            Route(operation_path(called), service.endpoint(called), methods=["POST"])
            for called in operations
        ),
    ]
    handlers: dict[Any, Any] = {FarmError: _explain, Exception: _explain, HTTPException: _no_route}
    app = Starlette(routes=routes, exception_handlers=handlers)
    names = {*LOOPBACK_NAMES, *lab.lab.settings.api.names}
    return RequestGuard(app, names, _refusal)


def _error(status: int, kind: ErrorKind, text: str) -> JSONResponse:
    known = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(RETRY_AFTER_S)}}
    headers = known.get(status)
    return JSONResponse({"error": {"kind": kind.value, "text": text}}, status, headers)


def _refusal(status: int, text: str) -> App:
    kind = ErrorKind.INVALID_REQUEST if status == 400 else ErrorKind.NOT_PERMITTED
    return _error(status, kind, text)


async def _explain(_: Request, error: Exception) -> Response:
    if isinstance(error, FarmError):
        kind = error_kind(error)
        return _error(kind.http_status, kind, safe_text(error, 2000, lines=True))
    text = f"this is a bug: {type(error).__name__}; the log of the API has the details"
    return _error(500, ErrorKind.BUG, text)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = safe_text(request.url.path, 100)
    text = f"there is no {path} here; /docs lists every address"
    if error.status_code == 405:
        text = f"{path} does not take {request.method}; /docs says what it takes"
    answer = _error(error.status_code, ErrorKind.INVALID_REQUEST, text)
    answer.headers.update(error.headers or {})
    return answer


class _ApiService:
    """The endpoints; each authenticates first, and calls one operation."""

    def __init__(self, lab: LabConnection, visitors: Visitors) -> None:
        self._lab = lab
        self._visitors = visitors
        self._feed = SharedFeed(lab)

    def _authorized(self, request: Request, role: Role) -> LabConnection:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if secret and scheme.lower() != "bearer":
            raise NotAuthenticated("the request has no bearer token; set FARM_TOKEN")
        return self._lab.for_user(self._visitors.person_of(request, secret.strip(), role))

    def endpoint(self, called: Operation) -> Any:
        """Return the endpoint of an operation."""

        async def answer(request: Request) -> Response:
            lab = await run_in_threadpool(self._authorized, request, called.role)
            types = types_of(called.function)
            if types.transfer is not None and types.transfer[1] is Transfer.UPLOAD:
                arguments = _arguments(types, request.query_params.get("arguments", "{}"))
                limit = lab.lab.settings.api.upload_mb_max * 10**6
                with tempfile.TemporaryFile() as file:
                    await _receive(request, file, limit)
                    arguments[types.transfer[0]] = file
                    call = partial(_call, called, types, lab, arguments)
                    return await self._visitors.places.run(lab.user, call, called.heavy)
            with tempfile.SpooledTemporaryFile(BODY_BYTES_MAX) as body:
                await _receive(request, body, BODY_BYTES_MAX)
                arguments = _arguments(types, body.read())
            answer = _call if types.transfer is None else _send_file
            call = partial(answer, called, types, lab, arguments)
            return await self._visitors.places.run(lab.user, call, called.heavy)

        return answer

    def reader(self, called: Operation) -> Any:
        """Return the endpoint of an operation that reads; its arguments are in the address."""

        async def answer(request: Request) -> Response:
            lab = await run_in_threadpool(self._authorized, request, called.role)
            types = types_of(called.function)
            asked = {name: request.query_params.getlist(name) for name in request.query_params}
            asked |= {name: [value] for name, value in request.path_params.items()}
            arguments = types.arguments_from_text(asked)
            send = _send_file if types.transfer is not None else _call
            call = partial(send, called, types, lab, arguments)
            return await self._visitors.places.run(lab.user, call, called.heavy)

        return answer

    def report_health(self, _: Request) -> Response:
        """Say that the process answers; needs no token and discloses nothing else."""
        return JSONResponse({"status": "ok"})

    def send_authority(self, _: Request) -> Response:
        """Send the certificate that a host compares with the digest in its enrolment command."""
        return JSONResponse({"certificate": authority_certificate(self._lab.lab).decode()})

    async def enrol(self, request: Request) -> Response:
        """Enrol a host; the secret in the request takes the place of a token."""
        with tempfile.SpooledTemporaryFile(ENROL_BYTES_MAX) as body:
            await _receive(request, body, ENROL_BYTES_MAX)
            types = types_of(enrol_host)
            arguments = _arguments(types, body.read())
        called, lab = Operation("enrol_host", Role.VIEWER, enrol_host), self._lab.for_user("")
        return await run_in_threadpool(_call, called, types, lab, arguments)

    def describe(self, request: Request) -> Response:
        """Return the OpenAPI description."""
        self._authorized(request, Role.VIEWER)
        return JSONResponse(describe_api(load_operations().values()))

    async def stream_events(self, request: Request) -> Response:
        """Stream the events of the lab, or of one sweep, as server-sent events."""
        lab = await run_in_threadpool(self._authorized, request, Role.VIEWER)
        sweep = request.query_params.get("sweep")
        number = (await self._feed.after(None, sweep))[0]
        lines = self._event_lines(request, sweep, number)
        return self._visitors.streams.respond(lab.user, lines, {"Cache-Control": "no-store"})

    async def _event_lines(
        self, request: Request, sweep: str | None, number: int
    ) -> AsyncIterator[str]:
        yield ": connected\n\n"
        checked_at = time.monotonic()
        while True:
            try:
                if time.monotonic() - checked_at > TOKEN_CHECK_S:
                    checked_at = time.monotonic()
                    await run_in_threadpool(self._authorized, request, Role.VIEWER)
                number, texts = await self._feed.after(number, sweep)
                for text in texts:
                    yield text
            except NotAuthenticated:
                yield "event: ended\ndata: \n\n"
                return
            except FarmError:  # store or broker are away
                yield ": waiting\n\n"
            yield ": \n\n"  # a client that has left is noticed when something is sent
            await anyio.sleep(READ_INTERVAL_S)

    async def send_table(self, request: Request) -> Response:
        """Send a table of a sweep, e.g. figures.csv or figures.parquet."""
        lab = await run_in_threadpool(self._authorized, request, Role.VIEWER)
        call = partial(self._table, request, lab)
        return await self._visitors.places.run(lab.user, call, heavy=True)

    def _table(self, request: Request, lab: LabConnection) -> Response:
        table, form = request.path_params["table"], request.path_params["form"]
        if form not in TABLE_FORMATS:
            raise InvalidRequest(f"unknown format '{form}'; use {', '.join(TABLE_FORMATS)}")
        invalid = request.query_params.get("include_invalid", "") in ("1", "true")
        sweep, asked = request.path_params["sweep"], ExportRequest(form, table, invalid)
        export = prepare_export(lab, sweep, asked)
        file = _written(lambda stream: write_export(lab, sweep, asked, stream))[0]
        headers = {"Content-Disposition": f'attachment; filename="{export.file_name}"'}
        media_type = MEDIA_TYPES.get(form, "application/octet-stream")
        return StreamingResponse(_pieces(file), media_type=media_type, headers=headers)


def _arguments(types: OperationTypes, text: str | bytes) -> dict[str, Any]:
    encoded = text.encode() if isinstance(text, str) else text
    if NO_TEXT in encoded:
        raise InvalidRequest("the body contains a NUL character; remove it")
    try:
        content = from_json(encoded or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest("the body is not JSON; write {NAME: VALUE, ...}") from error
    files = content.pop("files", {}) if types.fetch and isinstance(content, dict) else {}
    arguments = types.arguments_from_json(content)
    if types.fetch is not None:
        arguments[types.fetch] = _fetch_from(files)
    return arguments


def _fetch_from(files: object) -> Any:
    """Return a function that reads only what came with the request."""
    if not isinstance(files, dict) or len(files) > FILES_MAX:
        raise InvalidRequest(f"files is not an object with at most {FILES_MAX} texts by name")

    def fetch(name: str) -> str:
        text = files.get(name)
        if not isinstance(text, str):
            raise FileNotFoundError(2, "it is not part of the request", name)
        return text

    return fetch


async def _receive(request: Request, file: Any, limit: int) -> None:
    """Write the body to a file, and stop as soon as it is too large."""
    too_large = TooMuchData(f"the request is larger than {limit} bytes; see 'api' in lab.toml")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > limit:
        raise too_large
    size, started = 0, anyio.current_time()
    try:
        with anyio.fail_after(BODY_GRACE_S) as scope:
            async for piece in request.stream():
                size += len(piece)
                if size > limit:
                    raise too_large
                file.write(piece)
                scope.deadline = started + BODY_GRACE_S + size / BODY_RATE_MIN
    except ClientDisconnect as error:
        raise InvalidRequest("the request ended too early") from error
    except TimeoutError as error:
        raise TimedOut("the body of the request arrived too slowly; send it again") from error
    file.seek(0)


def _call(
    called: Operation, types: OperationTypes, lab: LabConnection, arguments: dict[str, Any]
) -> Response:
    result = called.function(lab, **arguments)
    return Response(types.result.dump_json(result), media_type="application/json")


def _written(write: Any) -> tuple[IO[bytes], Any]:
    """Write to a temporary file first: an error can still be reported as one."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the response closes it
    try:
        result = write(file)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file, result


def _send_file(
    called: Operation, types: OperationTypes, lab: LabConnection, arguments: dict[str, Any]
) -> Response:
    assert types.transfer is not None
    name = types.transfer[0]
    file, result = _written(lambda stream: called.function(lab, **arguments, **{name: stream}))
    note = json.dumps(types.result.dump_python(result, mode="json"))  # ASCII, fit for a header
    headers = {RESULT_HEADER: note}
    return StreamingResponse(_pieces(file), media_type="application/octet-stream", headers=headers)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece
