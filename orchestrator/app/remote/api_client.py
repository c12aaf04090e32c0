"""Calls the operations of a lab through its API: no broker, no database, only a token."""

import http.client
import inspect
import json
import os
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlsplit

from orchestrator.app.app_errors import (
    ApiDown,
    ErrorKind,
    InvalidState,
    NoPhoneMatches,
    NotAuthenticated,
    NotPermitted,
    TimedOut,
    TooMuchData,
)
from workloads.protocol.faults import BadFile, FarmError, FarmTrouble, InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.operation import Operation

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 600.0  # tuning a phone, an export of a large sweep
ANSWER_BYTES_MAX = 512 * 1024**2
PIECE_BYTES = 1 << 20
RESULT_HEADER = "Farm-Result"
_ERRORS: dict[ErrorKind, type[FarmError]] = {
    ErrorKind.INVALID_REQUEST: InvalidRequest,
    ErrorKind.INVALID_FILE: BadFile,
    ErrorKind.UNREACHABLE: FarmTrouble,
    ErrorKind.NOTHING_MATCHES: NoPhoneMatches,
    ErrorKind.REFUSED: InvalidState,
    ErrorKind.TIMED_OUT: TimedOut,
    ErrorKind.NOT_AUTHENTICATED: NotAuthenticated,
    ErrorKind.NOT_PERMITTED: NotPermitted,
    ErrorKind.TOO_LARGE: TooMuchData,
}


class RemoteLab:
    """The API of a lab, called with a token."""

    def __init__(self, url: str, token: str, ca_file: str = "") -> None:
        try:
            parts = urlsplit(url)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_url = False
        if not is_url:
            raise InvalidRequest(
                f"FARM_API '{safe_text(url, 80)}' is not a URL; write http://HOST:PORT"
            )
        if not token.isascii() or not token.isprintable():
            raise NotAuthenticated("FARM_TOKEN has characters that no token has; copy it again")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._parts = urlsplit(self.url)
        self._token = token
        self._ca_file = ca_file
        self._local = threading.local()  # a connection serves one thread

    @property
    def _connection(self) -> http.client.HTTPConnection | None:
        return getattr(self._local, "connection", None)

    def call(self, called: "Operation", args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operation; its errors are raised as if it had been called here."""
        from pydantic import ValidationError

        from orchestrator.app.remote.operation_types import types_of

        types = types_of(called.function)
        bound = inspect.signature(called.function).bind(None, *args, **kwargs).arguments
        content = types.arguments_to_json(bound)
        if types.fetch is not None:
            content["files"] = _named_files(bound, bound.get(types.fetch))
        stream = bound[types.transfer[0]] if types.transfer else None
        if types.transfer and types.transfer[1] == "upload":
            answer = self._upload(called.name, content, stream)
        elif types.transfer:
            answer = self._download(called.name, content, stream)
        else:
            answer = self._read(self._post(called.name, content))
        try:
            return types.result.validate_json(answer)
        except ValidationError as error:
            raise ApiDown(
                f"the response of {self.url} cannot be read; use the same version as the lab"
            ) from error

    def _post(self, name: str, content: Mapping[str, Any]) -> http.client.HTTPResponse:
        body = json.dumps(content).encode()
        return self._send(f"/v1/operations/{name}", body, "application/json")

    def _upload(self, name: str, content: Mapping[str, Any], stream: Any) -> bytes:
        path = f"/v1/operations/{name}?arguments={quote(json.dumps(content))}"
        return self._read(self._send(path, stream, "application/octet-stream"))

    def _download(self, name: str, content: Mapping[str, Any], stream: BinaryIO | Any) -> bytes:
        response = self._post(name, content)
        if response.status != http.client.OK:
            return self._read(response)
        try:
            while piece := response.read(PIECE_BYTES):
                stream.write(piece)
            _refuse_cut(response)
        except (OSError, http.client.HTTPException) as error:
            raise self._down(error) from error
        return (response.getheader(RESULT_HEADER) or "null").encode()

    def _send(self, path: str, body: Any, content_type: str) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        if not isinstance(body, bytes):
            headers["Content-Length"] = str(body.seek(0, os.SEEK_END))
            body.seek(0)
        is_new = self._connection is None
        try:
            connection = self._connect()
            connection.request("POST", self._parts.path + path, body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            stale = not is_new and isinstance(error, ConnectionError | http.client.HTTPException)
            if stale and isinstance(body, bytes):  # the server closed an idle connection
                return self._send(path, body, content_type)
            raise self._down(error) from error

    def _connect(self) -> http.client.HTTPConnection:
        connection = self._connection
        if connection is None:
            host, port = self._parts.hostname or "", self._parts.port
            if self._parts.scheme == "https":
                context = ssl.create_default_context(cafile=self._ca_file or None)
                connection = http.client.HTTPSConnection(
                    host, port, timeout=CONNECT_TIMEOUT_S, context=context
                )
            else:
                connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
            connection.connect()
            connection.sock.settimeout(ANSWER_TIMEOUT_S)
            self._local.connection = connection
        return connection

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        try:
            content = response.read(ANSWER_BYTES_MAX)
            _refuse_cut(response)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._down(error) from error
        if response.status == http.client.OK:
            return content
        raise self._error(response.status, content)

    def _error(self, status: int, content: bytes) -> FarmError:
        try:
            error = json.loads(content)["error"]
            kind, text = ErrorKind(error["kind"]), safe_text(error["text"], 2000, lines=True)
        except (ValueError, KeyError, TypeError):
            return ApiDown(f"{self.url} is not the API of a lab (HTTP {status}); check FARM_API")
        return _ERRORS.get(kind, FarmError)(text)

    def _down(self, error: Exception) -> ApiDown:
        reason = safe_text(getattr(error, "strerror", None) or error, 200)
        return ApiDown(
            f"the API at {self.url} cannot be reached: {reason}; check FARM_API, or start it"
        )

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._local.connection = None


def _refuse_cut(response: http.client.HTTPResponse) -> None:
    """Refuse an answer that ended before its length; http.client returns it as if it were whole."""
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)


def _named_files(bound: Mapping[str, Any], fetch: Callable[[str], str] | None) -> dict[str, str]:
    """Return the text of every file that the sweeps name; a wrong sweep is refused here."""
    from orchestrator.sweepfile.sweep_file import read_sweep

    files: dict[str, str] = {}
    if fetch is None:
        return files

    def record(name: str) -> str:
        files[name] = fetch(name)
        return files[name]

    for text in [bound["text"]] if "text" in bound else bound["texts"]:
        read_sweep(text, record)
    return files
