"""The web page of a lab: read-only, except for notes on sweeps.

A link with a code that works once sets a cookie that scripts cannot read; no other address contains
a secret. The cookie opens this page and its data only: operations need a token.
"""

import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from orchestrator.api.api_description import describe_api
from orchestrator.api.docs_page import docs_page
from orchestrator.api.open_streams import TOKEN_CHECK_S
from orchestrator.api.report_maker import ReportMaker
from orchestrator.api.visitors import Visitors
from orchestrator.app.app_errors import InvalidState, NotAuthenticated, TimedOut, TooMuchData
from orchestrator.app.control_sweeps import add_note, find_sweep
from orchestrator.app.export_results import prepare_report
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.manage_tokens import SESSION_DAYS, begin_session
from orchestrator.app.operation import Role
from orchestrator.app.remote.operation_types import load_operations
from orchestrator.app.screen.lab_page import LabPage, PageContent
from workloads.protocol.faults import FarmError
from workloads.units import count_text

COOKIE = "farm_session"
MESSAGE_INTERVAL_S = 1.0
REPORT_WAIT_S = 1.0  # then the page says how long it has been waiting
NOTE_BYTES_MAX, NOTE_TIMEOUT_S = 8_000, 30.0
HERE = Path(__file__).parent
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_FRAME = "frame-ancestors 'self'"  # the page of a sweep shows its report
_FRAMED = _HEADERS | {"Content-Security-Policy": f"default-src 'none'; style-src 'self'; {_FRAME}"}
_STATIC = {"live_page.css": "text/css", "live_page.js": "text/javascript"}
# A refresh by the page itself: a redirect from a link on another site would not carry the cookie.
_ENTER = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/">'
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Farmhand</title><link rel="stylesheet" href="/live_page.css">
<main><p>{text}</p></main></html>"""
_WAITING = _PAGE.replace("<title>", '<meta http-equiv="refresh" content="1"><title>')
_HINT = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Farmhand</title><link rel="stylesheet" href="/live_page.css">
<main><h1>Farmhand</h1><p>{text}</p>
<p>A person with access to the lab makes a link with <code>farm lab token add NAME --link</code>;
<code>farm up</code> prints one as well. Each link works once.</p></main></html>"""


def page_routes(lab: LabConnection, visitors: Visitors) -> list[Route]:
    """Return the routes of the page."""
    page = _PageService(lab, visitors)
    return [
        Route("/", page.show),
        Route("/docs", page.show_docs),
        Route("/login/{code}", page.log_in),
        *(Route(f"/{kind}/{{id}}", page.show) for kind in ("sweeps", "phones", "trials")),
        Route("/page/events", page.stream),
        Route("/page/phones/{serial}", page.reading("serial", page.content.phone)),
        Route("/page/sweeps/{sweep}", page.reading("sweep", page.content.sweep)),
        Route("/page/sweeps/{sweep}/notes", page.add_note, methods=["POST"]),
        Route("/page/trials/{trial}", page.reading("trial", page.content.trial)),
        Route("/page/reports/{sweep}", page.send_report),
        *(Route(f"/{name}", page.static(name, kind)) for name, kind in _STATIC.items()),
    ]


class _PageService:
    """The endpoints of the page; each checks the cookie first."""

    def __init__(self, lab: LabConnection, visitors: Visitors) -> None:
        self._lab = lab
        self._visitors = visitors
        self.content = LabPage(lab)
        self._reports = ReportMaker(lambda sweep: prepare_report(lab, sweep, True))

    def _check(self, request: Request) -> str:
        """Return the person of a session; NotAuthenticated if there is none."""
        secret = request.cookies.get(COOKIE, "")
        return self._visitors.person_of(request, secret, Role.VIEWER, is_session=True)

    def _refusal(self, request: Request) -> Response | None:
        """Return what somebody without a session is told; None with one."""
        try:
            self._check(request)
        except NotAuthenticated:
            text = "You are not logged in, or your session has expired."
            return HTMLResponse(_HINT.format(text=text), 401, _HEADERS)
        return None

    def static(self, name: str, kind: str) -> Any:
        """Return the endpoint of a file without data."""
        content = (HERE / name).read_bytes()
        return lambda _: Response(content, media_type=kind, headers=_HEADERS)

    def show_docs(self, request: Request) -> Response:
        """Send the description of the API."""
        if (refused := self._refusal(request)) is not None:
            return refused
        described = describe_api(load_operations().values())
        return HTMLResponse(docs_page(described, str(request.base_url)), headers=_HEADERS)

    def show(self, request: Request) -> Response:
        """Send the page, or what to do without a session."""
        if (refused := self._refusal(request)) is not None:
            return refused
        return HTMLResponse((HERE / "live_page.html").read_bytes(), headers=_HEADERS)

    def log_in(self, request: Request) -> Response:
        """Exchange the code of a link for a cookie."""
        try:
            session = begin_session(self._lab, request.path_params["code"])
        except NotAuthenticated:
            if self._refusal(request) is None:  # a logged-in person opens the link again
                return HTMLResponse(_ENTER, headers=_HEADERS)
            text = "This link was already used, or it has expired."
            return HTMLResponse(_HINT.format(text=text), 401, _HEADERS)
        response = HTMLResponse(_ENTER, headers=_HEADERS)
        response.set_cookie(
            *(COOKIE, session.secret),
            max_age=SESSION_DAYS * 86_400,
            secure=bool(self._lab.lab.settings.api.cert_file),
            httponly=True,
            samesite="strict",
        )
        return response

    async def stream(self, request: Request) -> Response:
        """Stream the lab as server-sent events: all of it, then what changed."""
        person = await run_in_threadpool(self._check, request)
        headers = _HEADERS | {"X-Accel-Buffering": "no"}
        return self._visitors.streams.respond(person, self._events(request), headers)

    async def _events(self, request: Request) -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        number, checked_at = 0, time.monotonic()
        while True:
            try:
                if time.monotonic() - checked_at > TOKEN_CHECK_S:
                    await run_in_threadpool(self._check, request)
                    checked_at = time.monotonic()
                number, text = await run_in_threadpool(self.content.message, number)
                yield f"data: {text}\n\n"
            except NotAuthenticated:
                yield "event: ended\ndata: \n\n"
                return
            except FarmError:  # store or broker are away; the page shows the age of its data
                yield ": waiting\n\n"
            await anyio.sleep(MESSAGE_INTERVAL_S)

    def reading(self, name: str, read: Callable[[str], PageContent]) -> Any:
        """Return the endpoint that sends one sweep, phone or trial as JSON."""

        async def answer(request: Request) -> Response:
            person = await run_in_threadpool(self._check, request)
            call = partial(read, request.path_params[name])
            content = await self._visitors.places.run(person, call)
            return JSONResponse(content, headers=_HEADERS)

        return answer

    async def add_note(self, request: Request) -> Response:
        """Write a note on a sweep."""
        person = await run_in_threadpool(self._check, request)
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > NOTE_BYTES_MAX:
            raise TooMuchData(f"a note has at most {NOTE_BYTES_MAX} bytes")
        with anyio.move_on_after(NOTE_TIMEOUT_S):
            text = (await request.body()).decode("utf-8", "replace")
            lab, sweep = self._lab.for_user(person), request.path_params["sweep"]
            await run_in_threadpool(add_note, lab, sweep, text.replace("\0", ""))
            return JSONResponse({}, headers=_HEADERS)
        raise TimedOut("the note arrived too slowly; send it again")

    def send_report(self, request: Request) -> Response:
        """Send the report of a sweep, or a page that waits for it."""
        self._check(request)
        sweep = find_sweep(self._lab, request.path_params["sweep"])
        task = self._reports.task(sweep)
        try:
            report = task.report.result(timeout=REPORT_WAIT_S)
        except TimeoutError:
            runs = count_text(sweep.done, "run")
            text = f"Making the report from {runs}: {task.seconds:.0f} s so far."
            return HTMLResponse(_WAITING.format(text=text), 202, _FRAMED)
        except InvalidState:
            text = "No results yet: no run has ended."
            return HTMLResponse(_PAGE.format(text=text), 409, _FRAMED)
        headers = _HEADERS | {"Content-Security-Policy": f"{report.policy}; {_FRAME}"}
        return HTMLResponse(report.html, headers=headers)
