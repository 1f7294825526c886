"""Pages that a browser on this machine shows cannot use an API that asks nobody who calls."""

import re

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from api_fakes import QUICK, agenda, open_api, ports

from pop_stream.api.app import create_app
from pop_stream.settings import Settings

PUBLIC = {"/healthz", "/readyz", "/openapi.json"}
SECRET = {"signing_secrets": ("s" * 32,)}


def addresses():
    """Method and path of every route, with something in place of each parameter."""
    app = create_app(ports(), Settings(), timing=QUICK)
    for route in app.router.routes():
        path = route.resource.canonical
        if path not in PUBLIC and route.method != "*" and path.startswith(("/v1", "/metrics")):
            yield route.method, re.sub(r"\{[^}]*\}", "a", path)


CHANGES = sorted({one for one in addresses() if one[0] not in {"GET", "HEAD"}})


async def answer(api, method, path, **headers):
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    async with api.client.request(method, path, headers=shown) as response:
        return response.status, await response.text()


@pytest.fixture
async def api():
    async with open_api() as one:
        yield one


async def test_there_are_changes_to_try():
    assert len(CHANGES) > 20


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Origin": "null", "Sec_Fetch_Site": "none"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(api, headers):
    for method, path in CHANGES:
        status, said = await answer(api, method, path, **headers)
        assert (status, "Origin" in said) == (403, True), path
    assert api.publisher.records == []


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example"]
)
async def test_a_name_that_was_turned_to_this_machine_is_not_served(api, host):
    for method, path in sorted(set(addresses())):
        status, said = await answer(api, method, path, Host=host)
        assert status == 403, path
        assert "POP_HTTP_HOSTS" in said or method == "HEAD"


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"]
)
async def test_a_bare_form_changes_nothing_where_no_body_is_needed(api, content_type):
    for method, path in CHANGES:
        status, _ = await answer(api, method, path, Content_Type=content_type)
        assert status == 415, path


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "pop:8080"],
)
async def test_its_own_page_and_programs_are_served_by_any_name_of_its_own(host):
    async with open_api(http_hosts=("pop",)) as api:
        for more in ({}, {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}):
            async with api.client.post(
                "/v1/agendas", json=agenda(), headers={"Host": host, **more}
            ) as response:
                assert response.status == 202, await response.text()


async def test_the_name_in_its_url_is_one_of_its_own():
    async with open_api(api_url="http://api:8080") as api:
        assert (await answer(api, "GET", "/v1/agendas", Host="api:8080"))[0] == 200


async def test_where_callers_show_keys_no_page_of_others_has_one_to_show():
    settings = Settings(auth="required", **SECRET)
    app = create_app(ports(), settings, timing=QUICK)
    assert isinstance(app, web.Application)
    async with TestClient(TestServer(app)) as client:
        headers = {"Host": "pop.example", "Origin": "https://elsewhere.example"}
        async with client.get("/v1/agendas", headers=headers) as response:
            assert response.status == 200  # the ports of this test know everyone
