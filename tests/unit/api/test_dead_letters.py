"""Dead letters over HTTP, on in-memory ports."""

import base64
import json

import pytest
from api_fakes import AT, agenda, open_api, summary
from attack_world import open_world
from memory_dead_letters import dead_letter

from pop_stream.model.agenda import encode_agenda, parse_agenda
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import State

A, B, C, D = ("a" * 20, "b" * 20, "c" * 20, "d" * 20)
BODY = json.dumps(agenda(id="r1")).encode()


def refused(letter_id=B, value=BODY, **changes):
    facts = {
        "kind": "refused", "code": "submission_refused", "part": "ingest", "value": value,
        "topic": "pop.submissions", "partition": 2, "offset": 7, "insight_id": None,
        "agenda_id": "r1",
    }  # fmt: skip
    return dead_letter(letter_id, **(facts | changes))


WEBHOOK = dead_letter(C, kind="webhook", code="undelivered", webhook_id="w1", value=b"{}")
UNREADABLE = dead_letter(D, kind="unreadable", code="unreadable_record", customer_id=None)


@pytest.fixture
async def api():
    async with open_api() as opened:
        await opened.letters.add([dead_letter(), refused(), WEBHOOK, UNREADABLE])
        opened.summaries.put(summary(state=State.FAILED, attempt=3, ended_at=AT))
        yield opened


async def state_of(api, letter_id):
    return (await api.letters.find(letter_id)).state


async def test_letters_are_listed_newest_first_in_pages(api):
    _, first = await api.get("/v1/dead-letters?limit=3")
    assert [one["id"] for one in first["letters"]] == [D, C, B]
    _, second = await api.get(f"/v1/dead-letters?limit=3&before={first['next']}")
    assert ([one["id"] for one in second["letters"]], second["next"]) == ([A], None)
    redrivable = {one["id"]: one["is_redrivable"] for one in first["letters"]}
    assert redrivable == {D: False, C: True, B: True}


async def test_letters_are_counted_by_reason(api):
    _, counts = await api.get("/v1/dead-letter-reasons?kind=refused&kind=webhook")
    assert counts["total"] == 2
    assert {one["code"] for one in counts["reasons"]} == {"submission_refused", "undelivered"}


@pytest.mark.parametrize(
    "query", ["kind=lost", "state=shut", "from_at=today", "ids=x", "colour=red", "limit=0"]
)
async def test_a_wrong_filter_says_which_field(api, query):
    status, problem = await api.get(f"/v1/dead-letters?{query}")
    assert status == 422
    assert problem["issues"][0]["field"].startswith(query.partition("=")[0])


async def test_a_letter_is_shown_with_its_value(api):
    status, letter = await api.get(f"/v1/dead-letters/{B}")
    assert (status, base64.b64decode(letter["value_base64"])) == (200, BODY)


async def test_an_exhausted_agenda_runs_again_once(api):
    status, result = await api.post(f"/v1/dead-letters/{A}/redrive", {"reason": "mended"})
    assert (status, result["outcome"], result["state"]) == (200, "done", "redriven")
    [event] = api.published
    assert (event["type"], event["agenda_id"]) == ("agenda.restarted", "a1")
    _, again = await api.post(f"/v1/dead-letters/{A}/redrive")
    assert (again["outcome"], "redriven by anyone" in again["detail"]) == ("already", True)
    assert len(api.published) == 1


async def test_an_agenda_that_went_on_by_itself_is_left_alone(api):
    api.summaries.put(summary(state=State.RUNNING, attempt=4))
    _, result = await api.post(f"/v1/dead-letters/{A}/redrive")
    assert (result["outcome"], result["detail"]) == ("already", "its agenda is running by now")
    assert (api.published, await state_of(api, A)) == ([], "redriven")


async def test_an_agenda_that_was_removed_cannot_run(api):
    api.summaries.agendas.clear()
    _, result = await api.post(f"/v1/dead-letters/{A}/redrive")
    assert (result["outcome"], result["state"]) == ("not_possible", "open")


async def test_a_refused_submission_is_submitted_as_it_would_be_now(api):
    _, result = await api.post(f"/v1/dead-letters/{B}/redrive")
    assert (result["outcome"], await state_of(api, B)) == ("done", "redriven")
    [record] = api.publisher.records
    assert (record.topic, record.key) == ("pop.submissions", b"r1")


async def test_what_is_still_not_sound_says_why_and_stays_open(api):
    await api.letters.add([refused(D[:-1] + "0", json.dumps({"id": "r2"}).encode())])
    _, result = await api.post(f"/v1/dead-letters/{D[:-1]}0/redrive")
    assert (result["outcome"], result["state"]) == ("refused", "open")
    assert "customer_id" in result["detail"]
    assert api.published == []


async def test_agendas_of_a_list_that_were_accepted_are_not_submitted_again(api):
    """Agendas without an id have the one that ingest made of their place."""
    listed = [agenda(), agenda(id="named"), agenda()]
    letter = refused(D[:-1] + "1", json.dumps(listed).encode(), key=None)
    await api.letters.add([letter])
    path = f"/v1/dead-letters/{letter.letter_id}/redrive"
    body = json.dumps(agenda(id="2-7-0")).encode()
    api.summaries.put(summary("2-7-0", body=api_body(body)))
    _, result = await api.post(path)
    assert result["outcome"] == "done"
    assert [one.key for one in api.publisher.records] == [b"named", b"2-7-2"]


def api_body(body):
    """What was accepted, as it is kept."""
    return encode_agenda(parse_agenda(body))


async def test_a_webhook_is_due_anew(api):
    _, result = await api.post(f"/v1/dead-letters/{C}/redrive")
    assert (result["outcome"], api.letters.webhooks) == ("done", ["w1"])


@pytest.mark.parametrize(
    "letter", [UNREADABLE, refused(D[:-1] + "2", truncated=True)], ids=["unreadable", "cut"]
)
async def test_what_cannot_be_redriven_says_what_to_do_instead(api, letter):
    await api.letters.add([letter])
    _, result = await api.post(f"/v1/dead-letters/{letter.letter_id}/redrive")
    assert (result["outcome"], result["state"]) == ("not_possible", "open")
    assert result["detail"]


async def test_a_discarded_letter_is_settled_and_stays_so(api):
    _, result = await api.post(f"/v1/dead-letters/{D}/discard", {"reason": "a test of theirs"})
    assert (result["outcome"], result["state"]) == ("done", "discarded")
    for action in ("discard", "redrive"):
        _, again = await api.post(f"/v1/dead-letters/{D}/{action}")
        assert again["outcome"] == "already"
    _, listed = await api.get("/v1/dead-letters")
    assert D not in {one["id"] for one in listed["letters"]}


async def test_many_are_counted_before_they_are_commanded(api):
    wish = {"action": "redrive", "filter": {"customer_id": ["acme"]}, "dry_run": True}
    _, counted = await api.post("/v1/dead-letter-commands", wish)
    assert (counted["matched"], counted["outcomes"]) == (3, {"done": 3})
    assert (api.published, api.audit.log) == ([], [])
    _, done = await api.post(
        "/v1/dead-letter-commands", wish | {"dry_run": False, "reason": "outage is over"}
    )
    assert (done["matched"], done["outcomes"], done["has_more"]) == (3, {"done": 3}, False)
    steps = [(one.action, one.kind, one.object_id) for one in api.audit.log]
    assert steps == [
        ("commanded", "dead-letters", "redrive"), ("finished", "dead-letters", "redrive")
    ]  # fmt: skip
    assert b"outage is over" in api.audit.log[0].after


async def test_those_that_failed_among_many_are_named(api):
    wish = {"action": "redrive", "filter": {"kind": ["unreadable", "webhook"]}}
    _, done = await api.post("/v1/dead-letter-commands", wish)
    assert done["outcomes"] == {"not_possible": 1, "done": 1}
    assert [one["id"] for one in done["failures"]] == [D]


async def test_a_command_for_everything_is_refused(api):
    wish = {"action": "discard", "filter": {"state": ["open"]}}
    status, problem = await api.post("/v1/dead-letter-commands", wish)
    assert (status, problem["issues"][0]["field"]) == (422, "filter")


async def test_one_command_settles_no_more_than_it_may(api, monkeypatch):
    monkeypatch.setattr("pop_stream.api.dead_letters.endpoints.MAX_COMMANDED", 100)
    await api.letters.add([dead_letter(f"{number:020x}") for number in range(130)])
    wish = {"action": "discard", "filter": {"kind": ["exhausted"]}}
    _, first = await api.post("/v1/dead-letter-commands", wish)
    _, second = await api.post("/v1/dead-letter-commands", wish)
    assert (first["matched"], first["has_more"]) == (100, True)
    assert (second["matched"], second["has_more"]) == (31, False)


# ---- who asks ----


async def test_a_customer_meets_its_own_letters_and_no_others():
    async with open_world(customers=("acme", "beta")) as world:
        for customer, own in (("acme", "0" * 20), ("beta", "f" * 20), (None, None)):
            headers = {"Authorization": f"Bearer {world.tokens[customer, Role.READ]}"}
            for query in ("", "?customer_id=acme&customer_id=beta"):
                async with world.client.get(
                    f"/v1/dead-letters{query}", headers=headers
                ) as answer:
                    found = {one["id"] for one in (await answer.json())["letters"]}
                assert found == ({own} if own else {"0" * 20, "f" * 20})
        headers = {"Authorization": f"Bearer {world.tokens['acme', Role.OPERATE]}"}
        wish = {"action": "discard", "filter": {"ids": ["f" * 20]}}
        async with world.client.post(
            "/v1/dead-letter-commands", json=wish, headers=headers
        ) as answer:
            assert (await answer.json())["matched"] == 0
