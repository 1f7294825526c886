"""CloudEvents over HTTP submit what they hold, once for each event."""

import json

import pytest
from api_fakes import AGENDA, open_api

from pop_stream.policy.ingress.cloud_events import BATCH, STRUCTURED, event_agenda_id

EVENT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.placed"}
ID = event_agenda_id("/shop", "e-1", "acme")


@pytest.fixture
async def api():
    async with open_api() as opened:
        yield opened


async def post(api, content, content_type, **headers):
    response = await api.client.post(
        "/v1/agendas",
        data=json.dumps(content).encode(),
        headers={"Content-Type": content_type, **headers},
    )
    return response.status, await response.json()


async def test_an_event_in_structured_mode(api):
    status, body = await post(api, {**EVENT, "data": AGENDA}, STRUCTURED)
    assert (status, body["id"]) == (202, ID)
    [record] = api.publisher.records
    assert json.loads(record.value)["id"] == ID
    assert json.loads(record.value)["operations"] == AGENDA["operations"]


async def test_an_event_in_binary_mode(api):
    headers = {f"ce-{name}": text for name, text in EVENT.items()}
    status, body = await post(api, AGENDA, "application/json", **headers)
    assert (status, body["id"]) == (202, ID)


async def test_the_same_event_again_is_one_agenda(api):
    first = await post(api, {**EVENT, "data": AGENDA}, STRUCTURED)
    assert await post(api, {**EVENT, "data": AGENDA}, STRUCTURED) == first
    other = {**AGENDA, "title": "other"}
    status, body = await post(api, {**EVENT, "data": other}, STRUCTURED)
    assert (status, body["code"]) == (409, "id_taken")


async def test_a_batch_of_events_of_which_each_stands_alone(api):
    events = [
        {**EVENT, "data": AGENDA},
        {**EVENT, "id": "e-2", "data": AGENDA},
        {**EVENT, "specversion": "2", "data": AGENDA},
    ]
    status, body = await post(api, events, BATCH)
    assert (status, body["accepted"], body["refused"]) == (202, 2, 1)
    assert body["results"][2]["issues"][0]["field"] == "specversion"
    assert (await post(api, EVENT, BATCH))[0] == 400


async def test_a_bad_event_is_refused_for_its_attribute(api):
    status, body = await post(api, {**EVENT, "source": "", "data": AGENDA}, STRUCTURED)
    assert (status, body["code"]) == (422, "submission_refused")
    assert body["issues"][0]["field"] == "source"


async def test_an_event_is_made_in_one_way(api):
    headers = {f"ce-{name}": text for name, text in EVENT.items()}
    status, body = await post(api, {**EVENT, "data": AGENDA}, STRUCTURED, **headers)
    assert (status, body["code"]) == (415, "unsupported_media_type")
    assert (await post(api, AGENDA, "application/cloudevents+avro"))[0] == 415
