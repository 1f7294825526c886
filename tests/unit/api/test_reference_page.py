"""The reference page names everything that is served."""

import re
from pathlib import Path

from aiohttp import web
from api_fakes import ports

from pop_stream.api.app import create_app
from pop_stream.api.http import problems
from pop_stream.api.http.errors import RequestError
from pop_stream.model.errors import PopStreamError, UnavailableError
from pop_stream.settings import Settings

PAGE = (Path(__file__).parents[3] / "docs/reference/http-api.md").read_text()


def test_the_page_and_the_router_name_the_same_paths():
    app = create_app(ports(), Settings())
    routed = {
        f"{route.method} {route.resource.canonical}"
        for route in app.router.routes()
        if route.method != "HEAD" and isinstance(route, web.ResourceRoute)
    }
    assert (
        set(re.findall(r"^\| `((?:GET|POST|PUT|PATCH|DELETE) /[^`]*)`", PAGE, re.MULTILINE))
        == routed
    )


def test_the_page_names_every_code_with_its_status():
    named = dict(re.findall(r"^\| `([a-z_]+)` \| (\d{3}) ", PAGE, re.MULTILINE))
    for kind in [*_kinds(RequestError), *_kinds(UnavailableError)]:
        if kind is not RequestError:
            assert named[kind.code] == str(problems.status_of(kind).value)
    assert named["submission_refused"] == "422"
    assert named["not_found"] == "404"
    assert named["internal"] == str(problems.status_of(PopStreamError).value)


def _kinds(kind):
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)


def test_the_page_names_every_limit():
    settings = Settings()
    for name in ("max_agenda_bytes", "max_request_bytes", "max_batch_agendas"):
        assert f"POP_{name.upper()}" in PAGE
        assert f"{getattr(settings, name):,}" in PAGE
