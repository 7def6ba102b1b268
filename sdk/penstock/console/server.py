"""The console over HTTP/1.1, by aiohttp's server: its loop reads requests, and threads answer them."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from penstock.console.account import AccountFacts
from penstock.console.background import Background, Lists, PromptTransport, ServiceDownError
from penstock.console.figures import Figures
from penstock.console.guard import (
    HEADERS,
    LOST,
    AsideTransport,
    Guard,
    PageTransport,
    Refusal,
    RightOfWay,
    Session,
)
from penstock.console.page import Answer, Asked, Memory, Moved, Page, Route, Shown, Stream
from penstock.console.pages import (
    acls,
    audit,
    dead_letters,
    groups,
    hot,
    jobs,
    live,
    overview,
    produce,
    quotas,
    records,
    scheduled,
    schedules,
    share_groups,
    subscriptions,
    topic,
    topics,
)
from penstock.console.rendering import render, static_file
from penstock.console.streaming import Streaming
from penstock.endpoint.local_endpoint import LocalEndpoint
from penstock.errors import as_sdk_error
from penstock.http.transport import Transport
from penstock.jobs.model import JobPlace
from penstock.system import new_nonce, wall_clock_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import (
    CONSOLE_ACCOUNT_MS_MIN,
    CONSOLE_FORM_BYTES_MAX,
    CONSOLE_FORM_FIELDS_MAX,
    CONSOLE_REQUESTS_MAX,
)

logger = logging.getLogger("penstock.console")
_STOP_S = 2.0  # for requests that are being answered when the console stops
_FORM_TYPE = "application/x-www-form-urlencoded"
_KEPT_MAX = 32
PAGES: tuple[Page, ...] = (
    overview.PAGE,
    topics.PAGE,
    topic.PAGE,
    records.PAGE,
    produce.PAGE,
    live.PAGE,
    scheduled.PAGE,
    hot.PAGE,
    groups.PAGE,
    share_groups.PAGE,
    subscriptions.PAGE,
    subscriptions.MIRRORS,
    schedules.PAGE,
    dead_letters.PAGE,
    acls.PAGE,
    quotas.PAGE,
    audit.PAGE,
    jobs.PAGE,
)


class ConsoleServer:
    """Serves the pages for one user.

    `say_link` gets each link that opens the console: the first, and the next ones. `read_account` asks AWS of the
    stack, None for a local service, and for a caller without AWS keys. `job_places` open the places that run jobs.
    The first browser that enters comes to the page `first_path`.
    """

    def __init__(
        self,
        transport: Transport,
        port: int,
        say_link: Callable[[str], None],
        *,
        read_account: Callable[[], AccountFacts] | None = None,
        job_places: Mapping[str, Callable[[], JobPlace]] | None = None,
        is_local: bool = True,
        first_path: str = "/",
    ) -> None:
        self.guard = Guard(port, new_nonce)
        self._transport = transport
        way = RightOfWay()
        self._prompt = PromptTransport(PageTransport(transport, way))
        account = None if read_account is None else Background(read_account, lambda: CONSOLE_ACCOUNT_MS_MIN)
        self.memory = Memory(
            figures=Figures(AsideTransport(transport, way)),
            lists=Lists(self._prompt),
            account=account,
            is_local=is_local,
            job_places=job_places or {},
        )
        self._say_link = say_link
        self._first_path = first_path
        self._threads = ThreadPoolExecutor(CONSOLE_REQUESTS_MAX, thread_name_prefix="penstock-page")
        self._streaming = Streaming()
        self._flashes = Flashes(new_nonce)
        self._endpoint: LocalEndpoint | None = None

    async def start(self, listening: socket.socket) -> None:
        """Answer requests from now on."""
        app = web.Application(client_max_size=CONSOLE_FORM_BYTES_MAX, middlewares=[self._guarded])
        app.router.add_get("/enter", self._enter, allow_head=False)
        app.router.add_get("/static/{name}", self._static, allow_head=False)
        for page in PAGES:
            for route in page.routes:
                app.router.add_route(route.method, route.path, partial(self._page, route))
            for stream in page.streams:
                app.router.add_route("GET", stream.path, partial(self._stream, stream))
        self._endpoint = LocalEndpoint(app, stop_s=_STOP_S)
        await self._endpoint.start(listening)
        self._say_link(self.guard.link)

    async def close(self) -> None:
        """Take no more requests, wait a moment for those under way, then close all connections."""
        self._streaming.stop()
        if self._endpoint is not None:
            await self._endpoint.close()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        await asyncio.to_thread(self._streaming.close)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Answer nobody but the sessions, and everything with the headers that keep browsers strict."""
        entering = request.method == "GET" and request.path == "/enter"
        admitted = (
            self.guard.check_host(request.headers) if entering else self.guard.admit(request.method, request.headers)
        )
        if isinstance(admitted, Refusal):
            return await self._refuse(admitted)
        try:
            response: web.StreamResponse = await handler(request)
        except web.HTTPNotFound:
            response = await self._fail(request, "Not found", f"The console has no page {request.path!r:.100}.", 404)
        except web.HTTPMethodNotAllowed:
            response = await self._fail(request, "Not allowed", "This page does not take that method.", 405)
        except web.HTTPRequestEntityTooLarge:
            text = f"The form is over {CONSOLE_FORM_BYTES_MAX} bytes: send less at once."
            response = await self._fail(request, "Too large", text, 413)
        except ConnectionError:
            raise  # the browser has gone
        except Exception as error:  # the edge: a defect must not show a traceback
            logger.exception("a request has failed in an unexpected way")
            text = f"The console has a defect: {type(error).__name__}."
            response = await self._fail(request, "Defect", text, 500)
        if not response.prepared:
            response.headers.update({name: value for name, value in HEADERS.items() if name not in response.headers})
        return response

    async def _refuse(self, refusal: Refusal) -> web.StreamResponse:
        html = await self._in_thread(render, "refused.html", {"reason": refusal.reason})
        return _html(html, refusal.status, HEADERS)

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        session = self.guard.enter(request.query.get("token", ""))
        if session is None:
            return await self._refuse(Refusal(status=403, reason="The link was used before. A link works once."))
        self._say_link(self.guard.link)
        response = web.Response(status=303, headers={"Location": self._first_path})
        self._first_path = "/"
        response.set_cookie(self.guard.cookie_name, session.secret, path="/", httponly=True, samesite="Strict")
        return response

    async def _static(self, request: web.Request) -> web.StreamResponse:
        found = static_file(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found[1], content_type=found[0], charset="utf-8")

    async def _page(self, route: Route, request: web.Request) -> web.StreamResponse:
        session = self.guard.session_of(request.headers)
        form = await _form_of(request) if route.method == "POST" else {}
        if isinstance(form, web.HTTPException):
            return await self._fail(request, "Not understood", form.text or "", form.status)
        if session is None:
            return await self._refuse(LOST)
        if route.method == "POST":
            refusal = self.guard.check_form(session, form.pop("form_token", ""))
            if refusal is not None:
                return await self._refuse(refusal)
        asked = self._asked(request, form)
        response: web.Response = await self._in_thread(self._answer, route, asked, session)
        return response

    async def _stream(self, stream: Stream, request: web.Request) -> web.StreamResponse:
        return await self._streaming.send(request, stream, self._asked(request, {}))

    def _asked(self, request: web.Request, form: Mapping[str, str]) -> Asked:
        return Asked(
            transport=self._transport,
            prompt=self._prompt,
            memory=self.memory,
            url_path=request.rel_url.raw_path,
            now_ms=wall_clock_ms(),
            path=dict(request.match_info),
            query={name: value for name, value in request.query.items() if name != "said"},
            said=self._flashes.take(request.query.get("said", "")),
            form=form,
        )

    def _answer(self, route: Route, asked: Asked, session: Session) -> web.Response:
        """In a thread: the page, or what went wrong in words."""
        try:
            answer: Answer = route.answer(asked)
        except PenstockError as error:
            answer = _failure(error)
        except ServiceDownError as down:
            answer = _failure(down.error)
        except Exception as error:  # the edge: a defect must not show a traceback, nor end the console
            logger.exception("a page has failed in an unexpected way")
            answer = _failure(PenstockError(ErrorCode.INTERNAL, f"the console has a defect: {type(error).__name__}"))
        if isinstance(answer, Moved):
            joint = "&" if "?" in answer.to else "?"
            location = f"{answer.to}{joint}said={self._flashes.keep(answer.said)}"
            return web.Response(status=303, headers={"Location": location})
        return _html(self._rendered(answer, asked, session), answer.status)

    def _rendered(self, shown: Shown, asked: Asked, session: Session) -> str:
        frame = {
            "title": shown.title,
            "menu": [page for page in PAGES if page.menu is not None],
            "current": asked.url_path,
            "form_token": session.form_token,
            "said": asked.said,
            "now_ms": asked.now_ms,
        }
        return render(shown.template, {**frame, **shown.facts})

    async def _fail(self, request: web.Request, title: str, message: str, status: int) -> web.StreamResponse:
        session = self.guard.session_of(request.headers)
        if session is None:
            return await self._refuse(LOST)
        facts = {"code": title, "message": message, "advice": None, "maybe_applied": False}
        shown = Shown(template="failed.html", title=title, facts=facts, status=status)
        return _html(await self._in_thread(self._rendered, shown, self._asked(request, {}), session), status)

    async def _in_thread(self, work: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *arguments))


def _failure(error: PenstockError) -> Shown:
    found = as_sdk_error(error)
    status = found.code.http_status
    code = str(found.to_json()["code"])
    facts = {
        "code": code,
        "message": found.message,
        "advice": ADVICE.get(found.code.category.name),
        "maybe_applied": found.maybe_applied,
    }
    return Shown(template="failed.html", title="This did not work", facts=facts, status=status)


ADVICE: Mapping[str, str] = {
    "DENIED": "Your credentials do not allow this. Ask for the right, or start the console with other credentials.",
    "THROTTLED": "The service asks for a pause. Wait a moment, and load the page again.",
    "UNAVAILABLE": "The service could not do it now. Load the page again; `penstock doctor` finds lasting causes.",
    "CONFLICT": "Something has changed since the page was loaded. Load it again, and look.",
}


async def _form_of(request: web.Request) -> dict[str, str] | web.HTTPException:
    """The fields of a form; of a repeated name the last one."""
    if request.content_type != _FORM_TYPE:
        return web.HTTPUnsupportedMediaType(text=f"Send a form as {_FORM_TYPE}.")
    try:
        text = (await request.read()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=CONSOLE_FORM_FIELDS_MAX))
    except ValueError:
        return web.HTTPBadRequest(text="The form cannot be read.")


def _html(text: str, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8", headers=headers)


class Flashes:
    """Texts that wait for their page. Several threads may use one Flashes. `draw` gives the numbers."""

    def __init__(self, draw: Callable[[], str]) -> None:
        self._draw = draw
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}

    def keep(self, text: str) -> str:
        """Keep the text; the answer is its number. The oldest of too many texts goes."""
        with self._lock:
            number = self._draw()[:8]
            self._texts[number] = text
            while len(self._texts) > _KEPT_MAX:
                del self._texts[next(iter(self._texts))]
            return number

    def take(self, number: str) -> str | None:
        """The text, once."""
        with self._lock:
            return self._texts.pop(number, None)
