"""What is accepted over HTTP, and what is refused."""

import asyncio
import gzip
import json
from dataclasses import replace

import pytest
import pytest_asyncio
from api_fakes import agenda, open_api

from pop_stream.model.definitions import Insight, Mappers
from pop_stream.model.errors import UnavailableError
from pop_stream.model.ids import InsightId


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        yield opened


def fields(body):
    return [issue["field"] for issue in body["issues"]]


async def test_an_agenda_is_published_before_it_is_accepted(api):
    status, body = await api.submit(agenda(id="a1", title="é"))
    assert (status, body["id"], body["state"]) == (202, "a1", "accepted")
    assert body["insight_id"] == "files"
    (record,) = api.publisher.on("pop.submissions")
    assert record.key == b"a1"
    assert json.loads(record.value) == agenda(id="a1", title="é")


async def test_location_and_links_lead_to_the_agenda(api):
    async with api.client.post("/v1/agendas", json=agenda(id="a:1~x")) as response:
        body = await response.json()
        assert response.headers["Location"] == "/v1/agendas/a:1~x"
    assert body["links"] == {
        "agenda": "/v1/agendas/a:1~x",
        "progress": "/v1/agendas/a:1~x/progress",
        "events": "/v1/agendas/a:1~x/events",
    }


async def test_an_agenda_without_id_is_given_one_and_published_with_it(api):
    _, body = await api.submit(agenda())
    assert body["id"] == "made-1"
    assert api.published == [agenda(id="made-1")]


async def test_a_new_definition_counts_at_once(api):
    assert (await api.submit(agenda(operations=[{"name": "a", "type": "new"}])))[0] == 422
    insight = Insight(id="fresh", mappers=Mappers(operation_types=("new",)))
    current = api.definitions.current
    insights = {**current.insights, InsightId("fresh"): insight}
    api.definitions.current = replace(current, insights=insights)
    status, body = await api.submit(agenda(operations=[{"name": "a", "type": "new"}]))
    assert (status, body["insight_id"]) == (202, "fresh")


async def test_kafka_away_is_503_with_retry_after_and_without_the_drivers_words(api):
    api.publisher.failures.append(UnavailableError("broker secret-host:9092 is away"))
    async with api.client.post("/v1/agendas", json=agenda()) as response:
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
        text = await response.text()
    assert "unavailable" in text
    assert "secret-host" not in text


UNSOUND = {
    "no customer": (agenda(customer_id=...), "customer_id"),
    "empty customer": (agenda(customer_id=""), "customer_id"),
    "customer of the wrong type": (agenda(customer_id=5), "customer_id"),
    "id that no path holds": (agenda(id="a/b"), "id"),
    "id too long": (agenda(id="a" * 129), "id"),
    "id with a line break": (agenda(id="a\n"), "id"),
    "unknown field": (agenda(customr_id="x"), "customr_id"),
    "priority out of bounds": (agenda(priority=10), "priority"),
    "negative cost": (agenda(cost_s=-1), "cost_s"),
    "no operations": (agenda(operations=[]), "operations"),
    "operations of the wrong type": (agenda(operations="fetch"), "operations"),
    "operation without a type": (agenda(operations=[{"name": "a"}]), "operations[0].type"),
    "operation is null": (agenda(operations=[None]), "operations[0]"),
    "unknown dependency": (
        agenda(operations=[{"name": "a", "type": "http", "depends_on": ["b"]}]),
        "operations[0].depends_on[0]",
    ),
    "duplicate name": (
        agenda(operations=[{"name": "a", "type": "http"}, {"name": "A", "type": "http"}]),
        "operations[1].name",
    ),
    "cycle": (
        agenda(
            operations=[
                {"name": "a", "type": "http", "depends_on": ["b"]},
                {"name": "b", "type": "http", "depends_on": ["a"]},
            ]
        ),
        "operations",
    ),
    "reference to nothing": (
        agenda(operations=[{"name": "a", "type": "http", "payload": "@<b.out>"}]),
        "operations[0].payload",
    ),
    "NUL": (agenda(title="a\0b"), "agenda"),
    "no insight": (agenda(operations=[{"name": "a", "type": "unknown"}]), "operations"),
    "a string": ("agenda", "agenda"),
    "a number": (5, "agenda"),
    "null": (None, "agenda"),
}


@pytest.mark.parametrize(("sent", "field"), UNSOUND.values(), ids=UNSOUND)
async def test_an_unsound_agenda_is_refused_with_the_field_and_a_remedy(api, sent, field):
    status, body = await api.submit(sent)
    assert (status, body["code"]) == (422, "submission_refused")
    assert field in fields(body)
    assert all(issue["message"] for issue in body["issues"])
    assert not api.publisher.records


@pytest.mark.parametrize(("sent", "field"), UNSOUND.values(), ids=UNSOUND)
async def test_in_a_list_it_is_refused_alone(api, sent, field):
    status, body = await api.submit([agenda(id="a1"), sent, agenda(id="a2")])
    assert (status, body["accepted"], body["refused"]) == (202, 2, 1)
    assert [one["status"] for one in body["results"]] == [202, 422, 202]
    assert field in fields(body["results"][1])
    assert [one["id"] for one in api.published] == ["a1", "a2"]


DEEP = json.dumps(agenda(title="#")).replace('"#"', "[" * 10_000 + "]" * 10_000).encode()

ODD_TEXT = {
    "nested 10,000 deep": DEEP,
    "half a surrogate": b'{"customer_id":"c","title":"\\ud800 x","operations":[]}',
    "raw control character": b'{"customer_id":"c","title":"\x01","operations":[]}',
    "number beyond bounds": b'{"customer_id":"c","priority":%b}' % (b"9" * 5_000),
}


@pytest.mark.parametrize("sent", ODD_TEXT.values(), ids=ODD_TEXT)
async def test_odd_text_is_refused(api, sent):
    status, body = await api.submit(sent)
    assert status in {400, 422}
    assert body["detail"]


@pytest.mark.parametrize("name", ["nested 10,000 deep", "half a surrogate"])
async def test_text_that_no_decoder_bears_costs_only_its_own_place_in_a_list(api, name):
    good = [json.dumps(agenda(id=one, title='],"[{\\')).encode() for one in ("a1", "a2")]
    status, body = await api.submit(b" [%b,\n%b , %b]\n" % (good[0], ODD_TEXT[name], good[1]))
    assert (status, body["accepted"], body["refused"]) == (202, 2, 1)
    assert [one["status"] for one in body["results"]] == [202, 422, 202]


NOT_JSON = {
    "empty": b"",
    "blank": b"  \n",
    "words": b"not json",
    "cut off": b'{"customer_id": "c"',
    "list cut off": b'[{"customer_id": "c"}',
    "deep list cut off": b"[" * 10_000,
    "surrogates cut off": b'[{"title": "\\ud800"}, {',
    "two documents": b"{} {}",
    "not a number": b'{"cost_s": NaN}',
    "list with a non-number": b"[NaN]",
    "latin-1": '{"title": "é"}'.encode("latin-1"),
    "utf-16": '{"title": "x"}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "single quotes": b"{'customer_id': 'c'}",
}


@pytest.mark.parametrize("sent", NOT_JSON.values(), ids=NOT_JSON)
async def test_what_is_not_json_is_400(api, sent):
    status, body = await api.submit(sent)
    assert (status, body["code"]) == (400, "not_json")


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/xml", "application/json; charset=utf-16", "nonsense", ""],
)
async def test_another_media_type_is_415(api, content_type):
    status, body = await api.submit(agenda(), **{"Content-Type": content_type})
    assert (status, body["code"]) == (415, "unsupported_media_type")


async def test_a_media_type_may_name_its_charset(api):
    headers = {"Content-Type": "Application/JSON; charset=UTF-8"}
    assert (await api.submit(agenda(), **headers))[0] == 202


async def test_unicode_survives(api):
    text = "😀 \u202e نص \u2028 \\u"
    status, _ = await api.submit(agenda(title=text, params={"k": text}))
    assert status == 202
    assert (api.published[0]["title"], api.published[0]["params"]) == (text, {"k": text})


async def test_a_compressed_body_is_read(api):
    status, _ = await api.submit(
        gzip.compress(json.dumps(agenda()).encode()), **{"Content-Encoding": "gzip"}
    )
    assert status == 202


async def test_a_body_that_is_not_compressed_as_it_says_is_400(api):
    status, body = await api.submit(agenda(), **{"Content-Encoding": "gzip"})
    assert (status, body["code"]) == (400, "bad_request")


async def test_a_list_keeps_its_order_and_names_every_id(api):
    status, body = await api.submit([agenda(id="b"), agenda(), agenda(id="a")])
    assert status == 202
    assert body["results"] == [
        {"index": 0, "status": 202, "id": "b", "insight_id": "files"},
        {"index": 1, "status": 202, "id": "made-1", "insight_id": "files"},
        {"index": 2, "status": 202, "id": "a", "insight_id": "files"},
    ]
    assert [record.key for record in api.publisher.records] == [b"b", b"made-1", b"a"]


async def test_an_id_taken_by_an_earlier_item_is_refused(api):
    _, body = await api.submit([agenda(id="a"), agenda(id="a", title="other")])
    assert [one["status"] for one in body["results"]] == [202, 422]
    assert fields(body["results"][1]) == ["id"]
    assert "item 0" in body["results"][1]["issues"][0]["message"]


async def test_a_list_of_which_nothing_is_accepted_is_422_with_every_reason(api):
    status, body = await api.submit([{}, agenda(priority=0)])
    assert (status, body["code"]) == (422, "none_accepted")
    assert (body["accepted"], body["refused"]) == (0, 2)
    assert fields(body["results"][1]) == ["priority"]


async def test_an_empty_list_is_422(api):
    status, body = await api.submit([])
    assert (status, body["code"]) == (422, "none_accepted")
    assert "no agenda" in body["detail"]


async def test_ten_thousand_agendas_go_in_one_request(api):
    status, body = await api.submit([agenda(id=f"a{n}") for n in range(10_000)])
    assert (status, body["accepted"]) == (202, 10_000)
    assert len(api.publisher.records) == 10_000


async def test_other_requests_get_a_turn_while_a_list_is_judged(api):
    large = asyncio.create_task(api.submit([agenda(id=f"a{n}") for n in range(10_000)]))
    async with api.client.get("/healthz") as response:
        assert response.status == 200
    assert not api.publisher.records
    assert (await large)[0] == 202


async def test_more_agendas_than_a_request_may_hold_are_413_with_the_limit():
    async with open_api(max_batch_agendas=3) as api:
        status, body = await api.submit([agenda()] * 4)
        assert (status, body["code"], body["limit"]) == (413, "too_large", 3)
        assert (await api.submit([agenda()] * 3))[0] == 202
        assert (await api.submit(b"[" + DEEP + b",0" * 4 + b"]"))[0] == 413


@pytest.mark.parametrize(
    "sent", [b"[" + b"0," * 300 + b"0]", b"[" * 20_000 + b"]" * 20_000], ids=["flat", "deep"]
)
async def test_a_list_of_more_parts_than_are_taken_apart_is_413(api, monkeypatch, sent):
    monkeypatch.setattr("pop_stream.api.http.body._MAX_TOKENS", 200)
    status, body = await api.submit(sent)
    assert (status, body["code"], body["limit"]) == (413, "too_large", 200)


async def test_an_agenda_over_the_limit_is_413_before_it_is_read_whole():
    async with open_api(max_agenda_bytes=2_000) as api:
        status, body = await api.submit(agenda(title="x", params={"k": "y" * 2_000}))
        assert (status, body["code"], body["limit"]) == (413, "too_large", 2_000)
        assert not api.publisher.records


async def test_in_a_list_an_agenda_over_the_limit_is_refused_alone():
    async with open_api(max_agenda_bytes=2_000) as api:
        status, body = await api.submit([agenda(params={"k": "y" * 2_000}), agenda()])
        assert status == 202
        assert [one["status"] for one in body["results"]] == [413, 202]


async def test_numbers_that_grow_when_written_out_count_as_written():
    async with open_api(max_agenda_bytes=2_000) as api:
        text = json.dumps(agenda(params={"k": ["#"]})).replace('"#"', "1e9," * 300 + "1e9")
        assert len(text) < 2_000
        status, body = await api.submit(text.encode())
        assert (status, body["limit"]) == (413, 2_000)


async def test_a_request_over_the_limit_is_413_however_it_is_sent():
    async def chunks():
        for _ in range(100):
            yield b"[" + b" " * 1_000

    async with open_api(max_request_bytes=10_000) as api:
        assert (await api.submit(b"[" + b" " * 20_000))[0] == 413
        headers = {"Content-Type": "application/json"}
        async with api.client.post("/v1/agendas", data=chunks(), headers=headers) as response:
            assert response.status == 413
            assert (await response.json(content_type=None))["limit"] == 10_000


async def test_a_small_body_that_unpacks_to_a_large_one_is_413():
    async with open_api(max_request_bytes=10_000) as api:
        bomb = gzip.compress(b"[" + b" " * 1_000_000)
        status, body = await api.submit(bomb, **{"Content-Encoding": "gzip"})
        assert (status, body["code"]) == (413, "too_large")


async def test_thousands_of_faults_are_reported_quickly_and_briefly(api):
    operations = [{"name": f"o{n}", "type": "http"} for n in range(5_000)]
    operations.append({"name": "z", "type": "http", "depends_on": ["x"] * 5_000})
    status, body = await api.submit(agenda(operations=operations))
    assert status == 422
    assert len(body["issues"]) == 10


async def test_bodies_that_hold_all_the_memory_there_is_make_others_wait():
    go_on = asyncio.Event()

    async def slowly():
        yield b"[" + b" " * 1_000
        await go_on.wait()
        yield b"]"

    async with open_api(max_request_bytes=1_024) as api:
        url, headers = "/v1/agendas", {"Content-Type": "application/json"}
        slow = [
            asyncio.create_task(api.client.post(url, data=slowly(), headers=headers))
            for _ in range(5)
        ]
        done, waiting = await asyncio.wait(
            slow, return_when=asyncio.FIRST_COMPLETED, timeout=10
        )
        (refused,) = done
        async with refused.result() as response:
            assert response.status == 503
            assert (await response.json(content_type=None))["code"] == "busy"
        go_on.set()
        for response in await asyncio.gather(*waiting):
            async with response:
                assert response.status == 422
        assert (await api.submit([agenda()]))[0] == 202


async def test_a_body_that_does_not_arrive_in_time_is_408(monkeypatch):
    monkeypatch.setattr("pop_stream.api.http.body._ARRIVES_WITHIN_S", 0.01)
    go_on = asyncio.Event()

    async def never():
        yield b"["
        await go_on.wait()

    async with open_api() as api:
        headers = {"Content-Type": "application/json"}
        async with api.client.post("/v1/agendas", data=never(), headers=headers) as response:
            assert response.status == 408
            assert (await response.json(content_type=None))["code"] == "slow_body"
        go_on.set()
