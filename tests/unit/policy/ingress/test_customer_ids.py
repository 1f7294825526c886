"""Ids that customers choose: each has a name space of its own, and sees nothing of others'."""

import json

import msgspec
import pytest
from api_fakes import AGENDA, AT, agenda, summary
from api_pulls import emitted
from attack_world import open_world
from pydantic import ValidationError

from pop_stream.auth.keys import make_key
from pop_stream.model.agenda import parse_agenda
from pop_stream.model.definitions import (
    VersionedTemplate,
    api_key_record,
    decode_api_key,
    is_api_key,
)
from pop_stream.model.errors import SubmissionError, UnreadableRecordError
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.template import AgendaTemplate
from pop_stream.model.tenancy import (
    candidate_ids,
    display_id,
    foreign_id_issue,
    is_qualified,
    qualified_id,
)
from pop_stream.policy.ingress.admission import VisibleTemplates
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.webhooks import webhook_payload

ACME = Principal("key:acme", "acme", frozenset({Role.SUBMIT}))
TEMPLATE = {"agenda": {"customer_id": "acme", "operations": AGENDA["operations"]}}


def test_what_a_customer_chooses_is_its_own_inside_and_plain_outside():
    assert qualified_id("order-7", "acme") == "order-7@acme"
    assert display_id("order-7@acme", "acme") == "order-7"
    assert display_id("order-7@acme", "beta") == "order-7@acme"
    assert display_id("order-7@acme", None) == "order-7@acme"
    assert qualified_id("order-7@acme", "acme") == "order-7@acme"
    assert qualified_id("order-7", None) == "order-7"
    assert is_qualified("a@b")
    assert not is_qualified("a")


def test_customers_whose_ids_run_into_each_other_stay_apart():
    assert qualified_id("a", "b.c") != qualified_id("a.b", "c")
    assert len({qualified_id(one, whom) for one in ("a", "a.b") for whom in ("c", "b.c")}) == 4


def test_a_customer_means_its_own_first_and_an_operator_what_it_says():
    assert candidate_ids("a", ACME) == ("a@acme", "a")
    assert candidate_ids("a@beta", ACME) == ("a@beta",)
    assert candidate_ids("a", ANYONE) == ("a",)


def test_an_id_that_says_another_customer_is_refused_by_its_form_alone():
    with pytest.raises(SubmissionError) as refused:
        parse_agenda({**AGENDA, "id": "a@beta"})
    assert [(one.field, one.value) for one in refused.value.issues] == [("id", "a@beta")]
    assert parse_agenda({**AGENDA, "id": "a@acme"}).id == "a@acme"
    assert foreign_id_issue(None, "acme") is None
    for odd in ("@acme", "a@", "a@@acme", "a@b@acme", "a" * 129, "a" * 129 + "@acme"):
        with pytest.raises(SubmissionError):
            parse_agenda({**AGENDA, "id": odd})


def test_a_callback_tells_the_id_that_the_customer_knows_under_a_unique_one():
    ended = summary("a1@acme", state=State.SUCCEEDED, callback_url="https://a.example")
    got = webhook_payload(None, ended)
    assert (got.agenda_id, got.id) == ("a1", "a1@acme/1")


class Caller:
    """One key's holder."""

    def __init__(self, world, customer, role):
        self._world = world
        self._headers = {"Authorization": f"Bearer {world.token(customer, role)}"}

    async def call(self, method, path, body=None):
        async with self._world.client.request(
            method, path, json=body, headers=self._headers
        ) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None


@pytest.fixture
async def opened():
    async with open_world(customers=("acme", "beta")) as world:
        yield world


async def test_two_customers_use_one_id_and_neither_learns_of_the_other(opened):
    answers = {}
    for customer in ("acme", "beta"):
        wish = agenda(customer_id=customer, id="order-7", title=customer)
        caller = Caller(opened, customer, Role.SUBMIT)
        answers[customer] = [await caller.call("POST", "/v1/agendas", wish) for _ in range(2)]
    fresh = await Caller(opened, "acme", Role.SUBMIT).call(
        "POST", "/v1/agendas", agenda(id="order-8")
    )
    for first, again in answers.values():
        assert first == again
        assert first == (fresh[0], json.loads(json.dumps(fresh[1]).replace("-8", "-7")))
    published = [json.loads(one.value) for one in opened.publisher.records]
    assert [one["id"] for one in published] == ["order-7@acme", "order-7@beta", "order-8@acme"]
    assert opened.publisher.records[0].key == b"order-7@acme"


async def test_an_id_that_an_operator_gave_another_is_as_free_as_any(opened):
    submit = Caller(opened, "acme", Role.SUBMIT)
    taken, free = [
        await submit.call("POST", "/v1/agendas", agenda(id=one)) for one in ("a-foreign", "x")
    ]
    assert taken[0] == free[0] == 202
    assert taken[1] == json.loads(
        json.dumps(free[1]).replace('"x"', '"a-foreign"').replace("/x", "/a-foreign")
    )
    several = await submit.call(
        "POST", "/v1/agendas", [agenda(id="a-foreign", title="other"), agenda(id="y")]
    )
    assert [one["status"] for one in several[1]["results"]] == [409, 202]  # of its own, above
    assert "a-foreign@" not in json.dumps(several)


@pytest.fixture
async def own(opened):
    body = json.dumps({"id": "a1@acme", **AGENDA}).encode().replace(b'"id": ', b'"id":')
    for customer in ("acme", "beta"):
        opened.summaries.put(
            summary(
                f"a1@{customer}",
                customer_id=customer,
                insight_id="i-own",
                link_id="l1",
                body=body.replace(b"@acme", f"@{customer}".encode()),
            )
        )
    return opened


@pytest.mark.parametrize("named", ["a1", "a1@acme"])
async def test_a_customer_reads_and_commands_its_own_by_what_it_calls_it(own, named):
    reader, operator = Caller(own, "acme", Role.READ), Caller(own, "acme", Role.OPERATE)
    status, whole = await reader.call("GET", f"/v1/agendas/{named}")
    assert (status, whole["id"], whole["agenda"]["id"]) == (200, "a1", "a1")
    for what in ("progress", "explain"):
        status, got = await reader.call("GET", f"/v1/agendas/{named}/{what}")
        assert status == 200, what
        assert "a1@" not in json.dumps(got), what
    status, got = await operator.call("POST", f"/v1/agendas/{named}/cancel")
    assert (status, got["id"], got["links"]["agenda"]) == (202, "a1", "/v1/agendas/a1")
    assert json.loads(own.publisher.records[-1].value)["agenda_id"] == "a1@acme"


async def test_lists_filters_and_streams_show_what_the_customer_calls_it(own):
    reader = Caller(own, "acme", Role.READ)
    for query in ("", "?ids=a1", "?ids=a1@acme", "?link_id=l1"):
        _, got = await reader.call("GET", f"/v1/agendas{query}")
        assert "a1" in [one["id"] for one in got["agendas"]], query
        assert "@" not in json.dumps(got["agendas"]), query
    for foreign in ("a1@beta", "a-foreign"):
        _, got = await reader.call("GET", f"/v1/agendas?ids={foreign}")
        assert (got["total"], got["agendas"]) == (0, [])
    headers = {"Authorization": f"Bearer {own.token('acme', Role.READ)}"}
    async with own.client.get("/v1/agendas/a1/events", headers=headers) as response:
        got = await response.content.readuntil(b"\n\n")
    assert b'"id":"a1"' in got
    assert b"@acme" not in got


async def test_a_command_by_filter_reaches_ones_own_by_what_one_calls_it(own):
    caller = Caller(own, "acme", Role.OPERATE)
    wish = {"action": "cancel", "filter": {"ids": ["a1", "a1@beta", "a-foreign"]}}
    status, got = await caller.call("POST", "/v1/commands", wish)
    assert (status, got["matched"]) == (202, 1)
    assert [json.loads(one.value)["agenda_id"] for one in own.publisher.records] == ["a1@acme"]


async def test_an_operator_names_the_customer_or_leaves_out_the_only_one(own):
    reader = Caller(own, None, Role.READ)
    for named, status in (
        ("a1@acme", 200), ("a1@beta", 200), ("a1", 404), ("a-own", 200), ("none", 404)
    ):  # fmt: skip
        assert (await reader.call("GET", f"/v1/agendas/{named}"))[0] == status, named
    del own.summaries.agendas["a1@beta"]
    status, got = await reader.call("GET", "/v1/agendas/a1")
    assert (status, got["id"]) == (200, "a1@acme")


async def test_what_a_customer_defines_never_meets_what_others_did(opened):
    caller = Caller(opened, "acme", Role.OPERATE)
    for named in ("t-foreign", "t-fresh"):
        status, got = await caller.call(
            "POST", "/v1/agenda-templates", {"id": named, **TEMPLATE}
        )
        assert (status, got["id"], got["owner"]) == (201, named, "acme")
        status, got = await caller.call(
            "PUT", f"/v1/agenda-templates/{named}", {**got, "title": "changed"}
        )
        assert (status, got["id"], got["version"]) == (200, named, 2)
        status, got = await caller.call(
            "PATCH", f"/v1/agenda-templates/{named}", {"id": named, "title": "again"}
        )
        assert (status, got["title"]) == (200, "again")
        status, got = await caller.call(
            "POST", "/v1/agenda-templates", {"id": named, **TEMPLATE}
        )
        assert (status, got["code"]) == (409, "already_exists")
    reader = Caller(opened, "acme", Role.READ)
    status, got = await reader.call("GET", "/v1/agenda-templates?id=t-foreign")
    assert [(one["id"], one["owner"]) for one in got["items"]] == [("t-foreign", "acme")]
    status, got = await reader.call("GET", "/v1/agenda-templates/t-foreign/versions/1")
    assert (status, got["id"]) == (200, "t-foreign")
    for method, named, status in (
        ("DELETE", "t-foreign", 204), ("DELETE", "t-foreign", 404), ("DELETE", "t-global", 404)
    ):  # fmt: skip
        assert (await caller.call(method, f"/v1/agenda-templates/{named}"))[0] == status
    stored = opened.definition_store.rows["template", "t-foreign"]
    assert stored.definition.owner == "beta"


async def test_one_that_exists_already_for_its_owner_is_not_defined_twice(opened):
    caller = Caller(opened, "acme", Role.OPERATE)
    status, got = await caller.call("POST", "/v1/agenda-templates", {"id": "t-own", **TEMPLATE})
    assert (status, got["code"]) == (409, "already_exists")


async def test_a_customer_runs_its_own_template_by_what_it_calls_it(opened):
    defined = {"id": "nightly", **TEMPLATE}
    await Caller(opened, "acme", Role.OPERATE).call("POST", "/v1/agenda-templates", defined)
    submit = Caller(opened, "acme", Role.SUBMIT)
    status, got = await submit.call("POST", "/v1/agenda-templates/nightly/run", {"id": "n-1"})
    assert (status, got["id"]) == (202, "n-1")
    published = json.loads(opened.publisher.records[-1].value)
    assert published["id"] == "n-1@acme"
    assert published["template"] == {"id": "nightly@acme", "version": 1}
    await _expect_template_shown_plainly(opened, opened.publisher.records[-1].value)
    other = Caller(opened, "beta", Role.SUBMIT)
    assert (await other.call("POST", "/v1/agenda-templates/nightly/run", {}))[0] == 404
    assert (await other.call("POST", "/v1/agenda-templates/nightly@acme/run", {}))[0] == 404


async def _expect_template_shown_plainly(opened, body):
    """To its customer; to an operator as it is called inside."""
    opened.summaries.put(summary("n-1@acme", insight_id="i-own", body=body))
    work = emitted("n-1@acme", 1, insight_id="i-own", agenda=msgspec.Raw(body))
    opened.deliveries.by_insight["i-own"] = [work]
    reader, worker = Caller(opened, "acme", Role.READ), Caller(opened, "acme", Role.PULL)
    _, whole = await reader.call("GET", "/v1/agendas/n-1")
    _, preview = await reader.call("POST", "/v1/agenda-templates/nightly/preview", {"id": "p"})
    _, pulled = await worker.call("POST", "/v1/insights/i-own/pull", {"puller_id": "w1"})
    for shown in (whole, preview, *pulled["agendas"]):
        assert shown["agenda"]["template"] == {"id": "nightly", "version": 1}
        assert "@acme" not in json.dumps(shown)
    assert [one["agenda"]["id"] for one in pulled["agendas"]] == ["n-1"]
    _, seen_by_operator = await Caller(opened, None, Role.READ).call("GET", "/v1/agendas/n-1")
    assert seen_by_operator["agenda"]["template"]["id"] == "nightly@acme"


async def test_an_operator_defines_under_the_very_id_and_finds_the_only_owner(opened):
    defined = {"id": "nightly", **TEMPLATE}
    await Caller(opened, "acme", Role.OPERATE).call("POST", "/v1/agenda-templates", defined)
    reader, writer = Caller(opened, None, Role.READ), Caller(opened, None, Role.OPERATE)
    status, got = await reader.call("GET", "/v1/agenda-templates/nightly")
    assert (status, got["id"]) == (200, "nightly@acme")
    status, got = await writer.call("PUT", "/v1/agenda-templates/nightly", TEMPLATE)
    assert (status, got["id"]) == (201, "nightly")
    status, got = await writer.call("PUT", "/v1/agenda-templates/x@acme", TEMPLATE)
    assert (status, got["code"]) == (422, "definition_refused")


async def test_a_customers_own_worker_reports_under_what_the_customer_calls_it(opened):
    def emitted_for(customer):
        body = (
            b'{"id":"a1@%b","operations":[{"name":"fetch","type":"own"}]}' % customer.encode()
        )
        return emitted(
            f"a1@{customer}",
            1,
            insight_id="i-own",
            customer_id=customer,
            agenda=msgspec.Raw(body),
        )

    opened.deliveries.by_insight["i-own"] = [emitted_for("acme"), emitted_for("beta")]
    worker = Caller(opened, "acme", Role.PULL)
    _, got = await worker.call(
        "POST", "/v1/insights/i-own/pull", {"puller_id": "w1", "count": 2}
    )
    shown = [(one["agenda_id"], one["agenda"]["id"]) for one in got["agendas"]]
    assert shown == [("a1", "a1"), ("a1@beta", "a1@beta")]
    tokens = {one["agenda_id"]: one["lease_token"] for one in got["agendas"]}
    for agenda_id, inside in (("a1", "a1@acme"), ("a1@beta", "a1@beta")):
        status, received = await worker.call(
            "POST",
            f"/v1/agendas/{agenda_id}/attempts/1/heartbeat",
            {"puller_id": "w1", "lease_token": tokens[agenda_id]},
        )
        assert (status, received["agenda_id"]) == (200, agenda_id)
        assert json.loads(opened.publisher.records[-1].value)["agenda_id"] == inside


async def test_refused_agendas_are_submitted_again_under_their_ids(opened):
    refused = summary(
        "a1@acme", state=State.REFUSED, body=json.dumps({"id": "a1", **AGENDA}).encode()
    )
    opened.summaries.put(refused)
    caller = Caller(opened, "acme", Role.OPERATE)
    status, got = await caller.call("POST", "/v1/resubmissions", {"filter": {"ids": ["a1"]}})
    assert (status, got["resubmitted"]) == (202, 1)
    assert json.loads(opened.publisher.records[-1].value)["id"] == "a1@acme"


def test_templates_are_those_that_a_caller_sees_by_what_it_calls_them():
    defined = {
        one.id: VersionedTemplate(one, 1)
        for one in (
            AgendaTemplate(id="nightly@acme", owner="acme", agenda={}),
            AgendaTemplate(id="nightly", agenda={}),
            AgendaTemplate(id="theirs", owner="beta", agenda={}),
        )
    }
    seen = VisibleTemplates(defined, ACME)
    assert seen["nightly"].template.owner == "acme"
    assert (sorted(seen), len(seen)) == (["nightly", "nightly@acme"], 2)
    assert seen.get("theirs") is None


def test_a_template_cannot_say_that_another_than_its_owner_chose_its_id():
    with pytest.raises(ValidationError, match="own customer"):
        AgendaTemplate(id="nightly@acme", owner="beta", agenda={})


def test_a_record_of_a_key_is_read_as_that_key_or_refused():
    key, _ = make_key(
        customer_id="acme", roles=frozenset({Role.READ}), now=AT, created_by="key:alice"
    )
    named = f"key/{key.id}"
    assert is_api_key(named)
    assert not is_api_key("insight/web")
    assert decode_api_key(named, api_key_record(key)) == key
    assert decode_api_key(named, None) is None
    for name, value in ((named, b"{}"), ("key/other", api_key_record(key))):
        with pytest.raises(UnreadableRecordError):
            decode_api_key(name, value)
