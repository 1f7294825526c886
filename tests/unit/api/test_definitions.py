"""Definitions over HTTP: conditions, patches, lists and refusals."""

import pytest
import pytest_asyncio
from api_fakes import open_api

TEMPLATE = {
    "id": "scan",
    "title": "Scans",
    "params": {"depth": {"type": "integer", "default": 1}},
    "agenda": {
        "customer_id": "acme",
        "operations": [{"name": "fetch", "type": "http", "payload": "@<pop.payload::/url>"}],
    },
}

ONE_OF_EACH = {
    "/v1/customers": {"id": "new", "weight": 3.0},
    "/v1/pools": {"id": "new", "max_in_flight": 7},
    "/v1/insights": {"id": "new", "mappers": {"operation_types": ["x"]}},
    "/v1/agenda-templates": {**TEMPLATE, "id": "new"},
}


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        yield opened


@pytest.mark.parametrize(("path", "content"), ONE_OF_EACH.items())
async def test_each_kind_is_created_read_changed_and_deleted(api, path, content):
    status, made, headers = await api.call("POST", path, content)
    assert (status, headers["ETag"], headers["Location"]) == (201, '"1"', f"{path}/new")
    assert made["version"] == 1
    assert (made["id"], made["title"]) == ("new", content.get("title", ""))
    one = f"{path}/new"
    assert (await api.call("GET", one))[1] == made
    status, changed, headers = await api.call("PATCH", one, {"title": "named"})
    assert (status, changed["title"], headers["ETag"]) == (200, "named", '"2"')
    status, back, headers = await api.call("PUT", one, content)
    assert (status, back["title"], headers["ETag"]) == (200, content.get("title", ""), '"3"')
    assert (await api.call("GET", f"{one}/versions/2"))[1]["title"] == "named"
    assert (await api.call("DELETE", one))[0] == 204
    assert (await api.call("GET", one))[0] == 404
    assert (await api.call("GET", f"{one}/versions/3"))[0] == 200
    kind = {"customers": "customer", "pools": "pool", "insights": "insight"}.get(path[4:])
    assert api.store.changes == [("anyone", f"{kind or 'template'}/new")] * 4


async def test_what_is_read_can_be_sent_back(api):
    for path, content in ONE_OF_EACH.items():
        _, made, _ = await api.call("POST", path, content)
        status, again, _ = await api.call("PUT", f"{path}/new", made)
        assert (status, again) == (200, made)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("PUT", {"If_Match": '"1"'}, 200),
        ("PUT", {"If_Match": '"7", "1"'}, 200),
        ("PUT", {"If_Match": "*"}, 200),
        ("PUT", {"If_Match": '"2"'}, 412),
        ("PUT", {"If_Match": 'W/"1"'}, 412),
        ("PUT", {"If_Match": "1"}, 200),
        ("PUT", {"If_Match": "one"}, 422),
        ("PUT", {"If_None_Match": "*"}, 412),
        ("PUT", {"If_None_Match": '"1"'}, 422),
        ("PUT", {"If_None_Match": "*", "If_Match": "*"}, 412),
        ("PATCH", {"If_Match": '"1"'}, 200),
        ("PATCH", {"If_Match": '"2"'}, 412),
        ("DELETE", {"If_Match": '"1"'}, 204),
        ("DELETE", {"If_Match": '"2"'}, 412),
    ],
)
async def test_conditions_are_heeded(api, method, headers, status):
    before = (await api.call("GET", "/v1/customers/acme"))[1]
    body = None if method == "DELETE" else {"weight": 9}
    answered, answer, _ = await api.call(method, "/v1/customers/acme", body, **headers)
    assert answered == status
    if status >= 400:
        assert (await api.call("GET", "/v1/customers/acme"))[1] == before
    if status == 412:
        assert "version 1" in answer["detail"]


@pytest.mark.parametrize(("path", "content"), ONE_OF_EACH.items())
async def test_of_each_kind_an_outdated_version_is_refused_and_nothing_changed(
    api, path, content
):
    one = f"{path}/new"
    await api.call("POST", path, content)
    await api.call("PATCH", one, {"title": "meanwhile"}, If_Match='"1"')
    for method, body in (("PUT", content), ("PATCH", {"title": "lost"}), ("DELETE", None)):
        status, answer, _ = await api.call(method, one, body, If_Match='"1"')
        assert (status, answer["code"]) == (412, "precondition_failed")
    _, kept, headers = await api.call("GET", one)
    assert (kept["title"], headers["ETag"]) == ("meanwhile", '"2"')
    assert (await api.call("DELETE", one, None, If_Match='"2"'))[0] == 204


async def test_conditions_on_what_is_not_there(api):
    assert (await api.call("PUT", "/v1/customers/new", {}, If_Match="*"))[0] == 412
    assert (await api.call("PUT", "/v1/customers/new", {}, If_Match='"1"'))[0] == 412
    assert (await api.call("PUT", "/v1/customers/new", {}, If_None_Match="*"))[0] == 201
    for condition in ("*", '"1"'):
        for method, body in (("PATCH", {}), ("DELETE", None)):
            answer = await api.call(method, "/v1/customers/none", body, If_Match=condition)
            assert (answer[0], answer[1]["code"]) == (404, "not_found")


async def test_a_known_version_is_not_sent_again(api):
    status, body, headers = await api.call("GET", "/v1/customers/acme", If_None_Match='"1"')
    assert (status, body, headers["ETag"]) == (304, None, '"1"')
    assert (await api.call("GET", "/v1/customers/acme", If_None_Match='"2"'))[0] == 200


async def test_null_takes_a_field_back_to_its_default(api):
    full = {"weight": 5, "max_in_flight": 3, "rate_per_s": 2, "title": "A"}
    await api.call("PUT", "/v1/customers/acme", full)
    _, patched, _ = await api.call(
        "PATCH", "/v1/customers/acme", {"weight": None, "max_in_flight": None, "title": "B"}
    )
    assert [patched[name] for name in full] == [1.0, None, 2.0, "B"]


async def test_a_patch_reaches_into_objects(api):
    await api.call("PATCH", "/v1/insights/files", {"mappers": {"params": ["a=b"]}})
    _, found, _ = await api.call("GET", "/v1/insights/files")
    assert found["mappers"]["operation_types"] == ["http", "sql"]
    assert found["mappers"]["params"] == ["a=b"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("POST", "/v1/customers", {}, 422, "id"),
        ("POST", "/v1/customers", {"id": 3}, 422, "id"),
        ("POST", "/v1/customers", {"id": "a b"}, 422, "id"),
        ("POST", "/v1/customers", [], 422, "body"),
        ("POST", "/v1/customers", {"id": "x", "wait": 1}, 422, "wait"),
        ("POST", "/v1/customers", {"id": "x", "title": "\0"}, 422, "customer"),
        ("PUT", "/v1/customers/x", {"id": "y"}, 422, "id"),
        ("PUT", "/v1/customers/x", {"pool": "none"}, 422, "pool"),
        ("PUT", "/v1/customers/x", {"default_insight": "none"}, 422, "default_insight"),
        ("PATCH", "/v1/insights/files", {"pool": "gpu"}, 422, "pool"),
        ("PATCH", "/v1/insights/files", {"partitions": 1}, 422, "partitions"),
        ("PATCH", "/v1/insights/files", {"id": "other"}, 422, "id"),
        ("POST", "/v1/agenda-templates", {"id": "t", "agenda": {"a": "@<b>"}}, 422, "template"),
    ],
)
async def test_a_refusal_names_the_field(api, method, path, body, status, field):
    answered, problem, _ = await api.call(method, path, body)
    assert (answered, problem["issues"][0]["field"]) == (status, field)
    assert api.store.changes == []


async def test_a_second_creation_is_a_conflict(api):
    status, problem, _ = await api.call("POST", "/v1/customers", {"id": "acme"})
    assert (status, problem["code"]) == (409, "already_exists")
    assert "PUT replaces it" in problem["detail"]


async def test_what_is_in_use_stays_and_its_users_are_named(api):
    await api.call("POST", "/v1/pools", {"id": "gpu", "max_in_flight": 1})
    await api.call("POST", "/v1/insights", {"id": "i", "pool": "gpu"})
    status, problem, _ = await api.call("DELETE", "/v1/pools/gpu")
    assert (status, problem["code"], problem["used_by"]) == (409, "in_use", ["insight/i"])
    _, pool, _ = await api.call("GET", "/v1/pools/gpu")
    assert pool["insight_ids"] == ["i"]
    api.store.unfinished["insight/files"] = ["a1"]
    status, problem, _ = await api.call("DELETE", "/v1/insights/files")
    assert (status, problem["used_by"]) == (409, ["1 agendas that have not ended, such as a1"])


@pytest.mark.parametrize("field", ["max_ready", "max_in_flight", "burst", "submit_burst"])
async def test_a_whole_number_is_one_however_json_writes_it_and_nothing_else_is(api, field):
    status, answer, _ = await api.call("PATCH", "/v1/customers/acme", {field: 3.0})
    assert (status, answer[field]) == (200, 3)
    for other in (True, "3", 3.5, 0, 10**12):
        status, answer, _ = await api.call("PATCH", "/v1/customers/acme", {field: other})
        assert (status, answer["issues"][0]["field"]) == (422, field), other


async def test_a_pool_shows_all_its_insights_however_many(api, monkeypatch):
    monkeypatch.setattr("pop_stream.api.definitions.resource.MAX_LISTED", 3)
    await api.call("POST", "/v1/pools", {"id": "gpu", "max_in_flight": 1})
    names = [f"i{number}" for number in range(8)]
    for name in names:
        await api.call("POST", "/v1/insights", {"id": name, "pool": "gpu"})
    for path in ("/v1/pools/gpu", "/v1/pools?id=gpu"):
        _, answer, _ = await api.call("GET", path)
        assert answer.get("items", [answer])[0]["insight_ids"] == names


async def test_a_list_leads_through_all_its_pages(api):
    for number in range(7):
        await api.call("POST", "/v1/customers", {"id": f"c{number}", "weight": number % 3 + 1})
    found, cursor = [], None
    while True:
        more = f"&cursor={cursor}" if cursor else ""
        _, page = await api.get(f"/v1/customers?limit=3&sort=-weight,id&fields=id,weight{more}")
        assert page["total"] == 8
        found += [(one["weight"], one["id"]) for one in page["items"]]
        assert all(one.keys() == {"id", "weight"} for one in page["items"])
        cursor = page["next"]
        if cursor is None:
            break
    assert len(found) == 8
    assert found == sorted(found, key=lambda one: (-one[0], one[1]))


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("limit=1&limit=2", "limit"),
        ("sort=colour", "sort"),
        ("fields=id,colour", "fields"),
        ("colour=red", "colour"),
        ("weight=heavy", "weight"),
        ("weight=nan", "weight"),
        ("paused=perhaps", "paused"),
        ("cursor=!", "cursor"),
        ("cursor=W10", "cursor"),
        ("title=%00", "query"),
    ],
)
async def test_a_query_that_cannot_be_used_is_refused_with_the_reason(api, query, field):
    status, problem = await api.get(f"/v1/customers?{query}")
    assert (status, problem["code"]) == (422, "bad_query")
    assert problem["issues"][0]["field"] == field


async def test_a_cursor_of_another_order_is_refused(api):
    await api.call("POST", "/v1/customers", {"id": "b"})
    _, page = await api.get("/v1/customers?limit=1")
    status, _ = await api.get(f"/v1/customers?limit=1&sort=-id&cursor={page['next']}")
    assert status == 422
