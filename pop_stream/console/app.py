"""The console as an application of aiohttp, and what stands before each of its requests.

A change is made by a form, and only by one of ours: it carries the session's own token, and the
browser says that it comes from this site. The content security policy lets no script, style or
picture of others in, and nothing inline.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import structlog
from aiohttp import web
from multidict import MultiDict, MultiMapping

from pop_stream.api.http.access import ForeignPages
from pop_stream.api.http.correlation import correlation_id
from pop_stream.client import (
    ApiForbiddenError,
    ApiRefusedError,
    ApiUnauthenticatedError,
)
from pop_stream.console import live
from pop_stream.console.layout import error_page, fault_page, navigation_of, notice_of
from pop_stream.console.oidc import PENDING_S, OidcConfig, OidcSignIn
from pop_stream.console.rendering import Page, Renderer
from pop_stream.console.routes import FORMS, PAGES, FormHandler, PageMaker
from pop_stream.console.sessions import Session, Sessions
from pop_stream.console.viewing import Clients, FindingsCache, PageView, QueueCache
from pop_stream.model.errors import (
    ForbiddenError,
    Issue,
    PopStreamError,
    SubmissionError,
    UnauthenticatedError,
)

_log = structlog.get_logger()

COOKIE: Final = "__Host-pop-session"
SIGN_IN_COOKIE: Final = "__Host-pop-sign-in"
THEME: Final = "pop-theme"
_YEAR_S: Final = 365 * 24 * 3600
_MAX_FORM: Final = 1024 * 1024


_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC: Final[Mapping[str, str]] = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_NEXT_THEME: Final[Mapping[str, str]] = {"auto": "dark", "dark": "light", "light": "auto"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """What the console needs to know.

    Attributes:
        base: The path of all its addresses, such as `/ui`.
        api_url: Where the API listens; asked once somebody looks.
        signs_in: Whether viewers sign in; without, the API asks nobody who calls.
        session: How long a viewer stays signed in.
        hosts: Names of this site, beside `localhost` and addresses.
        oidc: The issuer where viewers may sign in; None if keys alone are taken.
    """

    base: str
    api_url: Callable[[], str]
    signs_in: bool
    session: timedelta
    hosts: tuple[str, ...] = ()
    oidc: OidcConfig | None = None


class Console:
    """Sessions, clients and pages of one process.

    Args:
        config: What it needs to know.
        now: A clock in seconds that is never set back.
    """

    def __init__(
        self, config: ConsoleConfig, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._sessions = Sessions(config.session, now)
        self._clients = Clients(config.api_url)
        self._queues = QueueCache(now)
        self._findings = FindingsCache(now)
        self._renderer = Renderer(config.base)
        self._foreign_pages = ForeignPages(config.hosts)
        self._oidc = OidcSignIn(config.oidc, now) if config.oidc else None
        self._open_session: Session | None = None
        self._streams = live.Streams()
        self._static = {name: _static_file(name) for name in _STATIC}
        self._version = sha256(b"".join(self._static.values())).hexdigest()[:12]

    def application(self) -> web.Application:
        """To be mounted below the console's path."""
        app = web.Application()
        router = app.router
        router.add_get("/static/{name}", self._get_static)
        for path, page in PAGES:
            router.add_get(path, self._shows(page))
        for path, handler in FORMS:
            router.add_post(path, self._takes(handler))
        router.add_get("/sign-in", self._guarded(self._get_sign_in))
        router.add_post("/sign-in", self._guarded(self._post_sign_in))
        router.add_get("/sign-in/issuer", self._guarded(self._get_issuer))
        router.add_get("/sign-in/callback", self._guarded(self._get_callback))
        router.add_post("/sign-out", self._guarded(self._post_sign_out))
        router.add_post("/theme", self._guarded(self._post_theme))
        app.on_shutdown.append(self._close_streams)
        app.on_cleanup.append(self._close_clients)
        return app

    async def _close_streams(self, _: web.Application) -> None:
        self._streams.close()

    async def _close_clients(self, _: web.Application) -> None:
        await self._clients.close()

    # ---- handlers ----

    def _shows(self, make: PageMaker) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A handler that shows a page, or follows it while it changes."""

        async def handler(request: web.Request) -> web.StreamResponse:
            session = await self._session(request)
            if session is None:
                return self._to_sign_in(request)
            view = await self._view(request, session)
            if "text/event-stream" in request.headers.get("Accept", ""):
                return await self._follow(request, view, make)
            return self._answer(request, await make(view), session)

        return self._guarded(handler)

    def _takes(
        self, handle: FormHandler
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A handler that takes a form, and sends the browser on."""

        async def handler(request: web.Request) -> web.StreamResponse:
            session = await self._session(request)
            if session is None:
                return self._to_sign_in(request)
            form = await self._form(request, session)
            result = await handle(await self._view(request, session), form)
            if isinstance(result, Page):
                return self._answer(request, result, session)
            if result.startswith("?"):
                return _see_other(request.path.rpartition("/")[0] + result)
            return _see_other(self._config.base + result)

        return self._guarded(handler)

    def _guarded(
        self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler, with errors as pages, for requests of this site alone."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                self._foreign_pages.expect_known_host(request)
                if request.method == "POST":
                    self._foreign_pages.expect_same_site(request)
                return await handler(request)
            except ApiUnauthenticatedError:
                self._sessions.end(request.cookies.get(COOKIE, ""))
                return self._to_sign_in(request)
            except PopStreamError as error:
                return self._answer(request, error_page(error), self._known_session(request))
            except web.HTTPException:
                raise
            except Exception:
                if request.writer.output_size:
                    raise  # an answer has begun: all that is left is to cut the connection
                _log.exception("console.failed", path=request.path)
                page = fault_page(correlation_id(request))
                return self._answer(request, page, self._known_session(request))

        return guarded

    async def _follow(
        self, request: web.Request, view: PageView, make: PageMaker
    ) -> web.StreamResponse:
        async def main() -> str:
            if await self._session(request) is not view.session:
                msg = "the session has ended"
                raise ApiUnauthenticatedError(msg)
            page = await make(view)
            return self._renderer.main(page, self._common(request, view.session))

        return await self._streams.serve(request, main, _HEADERS)

    async def _get_static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._static:
            raise web.HTTPNotFound
        headers = {**_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
        body = self._static[name]
        return web.Response(body=body, content_type=_STATIC[name], headers=headers)

    async def _get_sign_in(self, request: web.Request) -> web.StreamResponse:
        if await self._session(request) is not None:
            return _see_other(f"{self._config.base}/")
        return self._answer(request, self._sign_in_page(request.query.get("back", "")), None)

    async def _post_sign_in(self, request: web.Request) -> web.StreamResponse:
        form = await _read_form(request)
        token, back = form.get("key", "").strip(), form.get("back", "")
        try:
            caller = await (await self._clients.of(token)).caller()
        except (ApiUnauthenticatedError, ApiForbiddenError, ApiRefusedError) as error:
            return self._answer(request, self._sign_in_page(back, fault=str(error)), None)
        session_id, _ = self._sessions.begin(caller, token)
        response = _see_other(self._own_address(back))
        self._set_session(response, session_id)
        return response

    async def _get_issuer(self, request: web.Request) -> web.StreamResponse:
        """Send the viewer to the issuer, and know the browser again when it comes back."""
        if self._oidc is None:
            raise web.HTTPNotFound
        begun = await self._oidc.begin(self._own_address(request.query.get("back", "")))
        headers = {**_HEADERS, "Location": begun.address}
        response = web.Response(status=HTTPStatus.SEE_OTHER, headers=headers)
        # Lax: the issuer's page sends the browser back, and a strict cookie stays out of that.
        response.set_cookie(
            SIGN_IN_COOKIE,
            begun.browser,
            max_age=int(PENDING_S),
            path="/",
            secure=True,
            httponly=True,
            samesite="Lax",
        )
        return response

    async def _get_callback(self, request: web.Request) -> web.StreamResponse:
        """Exchange the issuer's answer for a session."""
        if self._oidc is None:
            raise web.HTTPNotFound
        try:
            token, back = await self._oidc.finish(
                dict(request.query), request.cookies.get(SIGN_IN_COOKIE, "")
            )
            caller = await (await self._clients.of(token)).caller()
        except (UnauthenticatedError, ApiUnauthenticatedError, ApiForbiddenError) as error:
            return self._answer(request, self._sign_in_page("", fault=str(error)), None)
        session_id, _ = self._sessions.begin(caller, token)
        # A page, not a redirection: the browser sends a strict cookie only where a page of
        # this site leads it.
        response = self._answer(
            request, Page("signed_in.html", "Signed in", {"back": back}), None
        )
        self._set_session(response, session_id)
        response.del_cookie(
            SIGN_IN_COOKIE, path="/", secure=True, httponly=True, samesite="Lax"
        )
        return response

    def _set_session(self, response: web.StreamResponse, session_id: str) -> None:
        response.set_cookie(
            COOKIE,
            session_id,
            max_age=int(self._config.session.total_seconds()),
            path="/",
            secure=True,
            httponly=True,
            samesite="Strict",
        )

    def _sign_in_page(self, back: str, *, fault: str = "") -> Page:
        status = HTTPStatus.UNAUTHORIZED if fault else HTTPStatus.OK
        issuer = urlsplit(self._config.oidc.issuer).netloc if self._config.oidc else ""
        values = {"back": back, "fault": fault, "issuer": issuer}
        return Page("sign_in.html", "Sign in", values, status=status)

    async def _post_sign_out(self, request: web.Request) -> web.StreamResponse:
        session = await self._session(request)
        if session is not None:
            await self._form(request, session)
            self._sessions.end(request.cookies.get(COOKIE, ""))
        response = _see_other(f"{self._config.base}/sign-in")
        response.del_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="Strict")
        return response

    async def _post_theme(self, request: web.Request) -> web.StreamResponse:
        form = await _read_form(request)
        theme = form.get("theme", "")
        if theme not in _NEXT_THEME:
            theme = "auto"
        response = _see_other(self._own_address(form.get("back", "")))
        response.set_cookie(THEME, theme, max_age=_YEAR_S, path="/", samesite="Strict")
        return response

    # ---- what they need ----

    async def _session(self, request: web.Request) -> Session | None:
        if self._config.signs_in:
            return self._sessions.find(request.cookies.get(COOKIE, ""))
        if self._open_session is None:
            caller = await (await self._clients.of(None)).caller()
            self._open_session = Session(caller, None, float("inf"))
        return self._open_session

    def _known_session(self, request: web.Request) -> Session | None:
        """The session of a request, as far as it is known without asking the API."""
        if self._config.signs_in:
            return self._sessions.find(request.cookies.get(COOKIE, ""))
        return self._open_session

    async def _view(self, request: web.Request, session: Session) -> PageView:
        client = await self._clients.of(session.token)
        return PageView(
            session,
            client,
            request.query,
            dict(request.match_info),
            self._queues,
            self._findings,
        )

    async def _form(self, request: web.Request, session: Session) -> MultiMapping[str]:
        form = await _read_form(request)
        if not session.accepts(form.get("csrf", "")):
            msg = "the form is not of this session; open the page again and send it once more"
            raise ForbiddenError(msg)
        return form

    def _own_address(self, back: str) -> str:
        """Where to go on: an address of the console, whatever a form says."""
        base = self._config.base
        is_own = back == base or back.startswith((f"{base}/", f"{base}?"))
        return back if is_own and "\\" not in back and "//" not in back else f"{base}/"

    def _to_sign_in(self, request: web.Request) -> web.Response:
        if "text/event-stream" in request.headers.get("Accept", ""):
            return web.Response(status=HTTPStatus.NO_CONTENT, headers=_HEADERS)
        back = request.path_qs if request.method == "GET" else ""
        query = f"?{urlencode({'back': back})}" if back else ""
        return _see_other(f"{self._config.base}/sign-in{query}")

    def _common(self, request: web.Request, session: Session | None) -> dict[str, Any]:
        caller = session.caller if session else None
        theme = request.cookies.get(THEME, "auto")
        theme = theme if theme in _NEXT_THEME else "auto"
        here = request.path.removeprefix(self._config.base) or "/"
        return {
            "caller": caller,
            "csrf": session.csrf if session else "",
            "signs_in": self._config.signs_in,
            "navigation": navigation_of(caller),
            "here": here,
            "address": request.path_qs if request.method == "GET" else self._config.base,
            "theme": theme,
            "next_theme": _NEXT_THEME[theme],
            "assets": self._version,
            "notice": notice_of(request.query.get("did", ""), request.query.get("count", "")),
        }

    def _answer(
        self, request: web.Request, page: Page, session: Session | None
    ) -> web.Response:
        text = self._renderer.whole(page, self._common(request, session))
        return web.Response(
            text=text, content_type="text/html", status=page.status, headers=_HEADERS
        )


def mount(
    app: web.Application,
    config: ConsoleConfig,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Have an application serve the console, and lead from its root there."""

    async def lead(_: web.Request) -> web.StreamResponse:
        return _see_other(f"{config.base}/")

    app.add_subapp(config.base, Console(config, now).application())
    for path in ("/", config.base):
        app.router.add_get(path, lead)


async def _read_form(request: web.Request) -> MultiMapping[str]:
    """The texts of a form; files, which no form of ours sends, are left out.

    Raises:
        SubmissionError: If it cannot be read, or is larger than any form of ours.
    """
    try:
        # The limit of an application that is mounted below another is never asked.
        fields = await request.clone(client_max_size=_MAX_FORM).post()
    except web.HTTPRequestEntityTooLarge:
        message = f"is larger than {_MAX_FORM:,} bytes; send less, or use the API"
        raise SubmissionError([Issue("form", "too long", message)]) from None
    except (web.HTTPBadRequest, ValueError, LookupError, AssertionError) as error:
        message = "cannot be read; send it as the page does, in UTF-8"
        raise SubmissionError([Issue("form", str(error)[:200], message)]) from None
    texts: MultiDict[str] = MultiDict()
    for name, value in fields.items():
        if isinstance(value, str):
            texts.add(name, value)
        elif isinstance(value, web.FileField):
            value.file.close()
    return texts


def _static_file(name: str) -> bytes:
    return (files("pop_stream.console") / "static" / name).read_bytes()


def _see_other(address: str) -> web.Response:
    split = urlsplit(address)
    if split.scheme or split.netloc:
        address = "/"
    headers = {**_HEADERS, "Location": address}
    return web.Response(status=HTTPStatus.SEE_OTHER, headers=headers)
