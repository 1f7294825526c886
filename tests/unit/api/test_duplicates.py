"""Submissions with a deduplication key: which are refused at once, and what that says."""

import pytest
from api_fakes import agenda, open_api, summary

from pop_stream.model.agenda import dedupe_rule, parse_agenda
from pop_stream.model.events.base import Diagnostic, Duplicate
from pop_stream.policy.lifecycle.states import State


def keyed(key="k", **changes):
    policy = changes.pop("on_duplicate", "refuse")
    dedupe = {"key": key, "on_duplicate": policy, **changes.pop("dedupe", {})}
    return agenda(dedupe=dedupe, **changes)


def stand(api, body, agenda_id="first", retry_after_s=12.3):
    """What the scheduler says has the body's key."""
    key = dedupe_rule(parse_agenda(body)).key
    api.questions.duplicates[key] = Duplicate(key, agenda_id, retry_after_s)


async def test_a_duplicate_is_409_with_retry_after_and_names_the_one_that_is_there():
    async with open_api() as api:
        assert (await api.submit(keyed()))[0] == 202
        stand(api, keyed())
        status, body, headers = await api.call("POST", "/v1/agendas", keyed())
        assert (status, body["code"], headers["Retry-After"]) == (409, "duplicate", "13")
        assert body["duplicate_of"] == "first"
        assert body["issues"][0]["field"] == "dedupe"
        assert "choose another on_duplicate" in body["issues"][0]["message"]
        assert (await api.submit(keyed("another")))[0] == 202
        assert (await api.submit(agenda()))[0] == 202


@pytest.mark.parametrize("policy", ["keep", "replace", "update", "reprioritise"])
async def test_other_policies_are_left_to_the_scheduler(policy):
    async with open_api() as api:
        body = keyed(on_duplicate=policy)
        stand(api, body)
        assert (await api.submit(body))[0] == 202


async def test_the_same_submission_again_is_no_duplicate_of_itself():
    async with open_api() as api:
        body = keyed(id="mine")
        assert (await api.submit(body))[0] == 202
        stand(api, body, "mine")
        assert (await api.submit(body))[0] == 202
        assert len(api.published) == 1


async def test_without_a_scheduler_everything_is_let_in():
    async with open_api() as api:
        api.questions.duplicates = None
        assert (await api.submit(keyed()))[0] == 202


async def test_a_customers_name_for_the_one_that_is_there_is_shown():
    async with open_api() as api:
        stand(api, keyed(), "first@acme")
        assert (await api.submit(keyed()))[1]["duplicate_of"] == "first"


async def test_each_agenda_of_a_list_is_judged_by_itself_and_against_those_before_it():
    async with open_api() as api:
        stand(api, keyed("old"))
        body = [
            keyed("old"),
            keyed("new"),
            keyed("new"),
            agenda(),
            keyed("new", on_duplicate="keep"),
        ]
        status, got, _ = await api.call("POST", "/v1/agendas", body)
        assert status == 202
        assert [one["status"] for one in got["results"]] == [409, 202, 409, 202, 202]
        assert len(api.published) == 3


async def test_a_templates_key_is_filled_in_from_the_payload():
    async with open_api() as api:
        made = {
            "customer_id": "acme",
            "operations": [{"name": "scan", "type": "http", "payload": "@<pop.payload>"}],
            "dedupe": {"key": ["@<pop.payload::/host>", "@<pop.payload::/port>"]},
        }
        template = {"id": "scan", "agenda": made}
        assert (await api.call("POST", "/v1/agenda-templates", template))[0] == 201
        path = "/v1/agenda-templates/scan/run"
        run = {"payload": {"host": "a", "port": 80}}
        assert (await api.call("POST", path, run))[0] == 202
        stand(api, api.published[-1])
        assert (await api.call("POST", path, run))[0] == 409
        other = {"payload": {"host": "a", "port": 81}}
        assert (await api.call("POST", path, other))[0] == 202
        allowed = {**run, "dedupe": {"key": "other"}}
        assert (await api.call("POST", path, allowed))[0] == 202


async def test_a_summary_names_the_one_that_stands_in_its_place():
    async with open_api() as api:
        named = Diagnostic(
            message="a duplicate of first",
            at=summary().accepted_at,
            code="duplicate",
            detail={"agenda_id": "first@acme"},
        )
        api.summaries.put(summary("a2", state=State.CANCELLED, diagnostics=(named,)))
        _, body = await api.get("/v1/agendas/a2")
        assert body["duplicate_of"] == "first@acme"  # an operator sees the whole
        api.summaries.put(summary("a3"))
        assert (await api.get("/v1/agendas/a3"))[1]["duplicate_of"] is None


@pytest.mark.parametrize(
    ("dedupe", "field"),
    [
        ({}, "dedupe"),
        ({"key": None}, "dedupe"),
        ({"fields": ["x"]}, "dedupe.fields[0]"),
        ({"fields": ["/operations/7/payload"]}, "dedupe.fields[0]"),
        ({"key": 1, "while": "sleeping"}, "dedupe.while"),
        ({"key": 1, "during": "waiting"}, "dedupe.during"),
        ({"key": 1, "within_s": 0}, "dedupe.within_s"),
        ({"key": 1, "within_s": 1e9}, "dedupe.within_s"),
        ({"key": 1, "on_duplicate": "explode"}, "dedupe.on_duplicate"),
        ({"key": 1, "on_duplicate": "debounce"}, "dedupe"),
        ({"key": 1, "debounce_s": 5}, "dedupe"),
        (
            {"key": 1, "on_duplicate": "debounce", "debounce_s": 5, "while": "running"},
            "dedupe",
        ),
    ],
)
async def test_an_unsound_rule_is_refused_with_its_field(dedupe, field):
    async with open_api() as api:
        status, body = await api.submit(agenda(dedupe=dedupe))
        assert (status, body["issues"][0]["field"]) == (422, field)
        assert not api.published
