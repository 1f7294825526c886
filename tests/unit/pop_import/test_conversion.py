"""What POP's objects become, field by field."""

import json

import pytest

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.definitions import KINDS
from pop_stream.model.template import TEMPLATE_CALL, expand
from pop_stream.pop_import.conversion import convert
from pop_stream.pop_import.fields import ImportOptions
from pop_stream.pop_import.objects import read_objects

CUSTOMER = {"id": "nora", "customerId": "nora", "title": "Nora", "resourcePoolId": "kiln"}
POOL = {"id": "kiln", "customerId": "ops", "title": "Kiln", "insightIds": ["firing"]}
INSIGHT = {
    "id": "firing",
    "customerId": "ops",
    "title": "Firing",
    "resourcePoolId": "kiln",
    "queueName": "kiln-queue",
    "queueSize": 8,
    "schedulingAlgorithm": "FirstInFirstOut",
    "mappers": {
        "operationName": ["Fire"],
        "OperationType": ["fire"],
        "paramMap": ["heat=high"],
    },
    "allowedCustomerIds": ["nora"],
    "addedTime": 1580000000000,
}
AGENDA = {
    "id": "a-1",
    "customerId": "nora",
    "linkId": "set-3",
    "params": {"externalId": "T-1", "maximumAttempts": "2"},
    "operations": [
        {"name": "Shape", "type": "shape", "payload": {"of": "clay"}, "id": "01"},
        {"name": "Fire", "type": "fire", "payload": "@<Shape.out>",
         "params": {"dependsOn": "Shape, Shape"}},
    ],
}  # fmt: skip
TEMPLATE = {
    "id": "pot",
    "customerId": "nora",
    "title": "A pot",
    "staticParameters": {"heat": 1200},
    "agenda": {
        "customerId": "nora",
        "linkId": "@<pop.payload::/set>",
        "params": {"maximumAttempts": "@<pop.payload::/tries>", "doNotRun": False},
        "operations": [{"name": "Fire", "type": "fire", "payload": {"at": "@<heat>"}}],
    },
}


def imported(*objects, kind=None, **options):
    document = json.dumps(objects).encode()
    found, unreadable = read_objects([("pop.json", document)], kind)
    assert not unreadable
    return convert(found, ImportOptions(**options))


def fates(one, became):
    return {fate.field: fate.to or fate.why for fate in one.fates if fate.became == became}


def refusals(one):
    return fates(one, "refused")


def test_customers_pools_and_insights_become_sound_definitions():
    customer, pool, insight = imported(CUSTOMER, POOL, INSIGHT)
    assert customer.content == {"id": "nora", "title": "Nora", "pool": "kiln"}
    assert pool.content == {"id": "kiln", "title": "Kiln", "max_in_flight": 1_000_000_000}
    assert insight.content == {
        "id": "firing",
        "title": "Firing",
        "owner": "ops",
        "visibility": "allowed",
        "allowed": ["nora"],
        "pool": "kiln",
        "target": 8,
        "algorithm": "fifo",
        "mappers": {
            "operation_names": ["Fire"],
            "operation_types": ["fire"],
            "params": ["heat=high"],
        },
    }
    for one in (customer, pool, insight):
        KINDS[one.kind].model_validate(one.content)


@pytest.mark.parametrize("given", [CUSTOMER, POOL, INSIGHT, AGENDA, TEMPLATE])
def test_every_field_is_accounted_for(given):
    [one] = imported(given)
    named = {fate.field.partition(".")[0].partition("[")[0] for fate in one.fates}
    assert set(given) <= named
    assert not refusals(one)


def test_an_agenda_becomes_a_submission():
    [one] = imported(AGENDA | {"cid": "c-9", "progressId": "p", "jobId": "j"})
    agenda = parse_agenda(one.content)
    assert (agenda.id, agenda.customer_id, agenda.link_id) == ("a-1", "nora", "set-3")
    assert (agenda.max_attempts, agenda.params) == (2, {"externalId": "T-1"})
    assert agenda.operations[1].depends_on == ("Shape", "Shape")
    assert agenda.trace.correlation_id == "c-9"
    assert {"progressId", "jobId", "operations[0].id"} <= fates(one, "dropped").keys()


def test_a_template_runs_as_it_did():
    [one] = imported(TEMPLATE)
    template = KINDS["template"].model_validate(one.content)
    call = TEMPLATE_CALL.model_validate({"payload": {"set": "s-1", "tries": 4}})
    agenda = expand(template, call, version=1)
    assert (agenda.link_id, agenda.max_attempts, agenda.hold) == ("s-1", 4, True)
    assert agenda.operations[0].payload == {"at": 1200}


def test_a_run_takes_its_payload_out_of_the_text():
    [one] = imported({"agendaTemplateId": "pot", "payload": '{"set": "s-2"}'})
    assert (one.kind, one.content["template_id"]) == ("run", "pot")
    assert one.content["payload"] == {"set": "s-2"}
    [bad] = imported({"agendaTemplateId": "pot", "payload": '{"set": '})
    assert "JSON" in refusals(bad)["payload"]


def test_what_has_no_id_gets_the_same_one_each_time_and_its_twin_another():
    nameless = {name: one for name, one in AGENDA.items() if name != "id"}
    first, second = imported(nameless, nameless)
    assert first.id != second.id
    assert [one.id for one in imported(nameless, nameless)] == [first.id, second.id]
    [customer] = imported({"title": "Nora & Co", "resourcePoolId": "kiln"})
    assert customer.id == "Nora-Co"


def test_ids_are_made_to_fit_and_two_never_become_one():
    account, other = "http://example.org/data/Account/7", "https://example.org/data/Account/7"
    agenda = AGENDA | {"customerId": account}
    [one] = imported(agenda)
    assert one.content["customer_id"] == "example.org-data-Account-7"
    first, second = imported(agenda, AGENDA | {"id": "a-2", "customerId": other})
    assert not refusals(first)
    assert "--rename" in refusals(second)["customerId"]
    _, renamed = imported(
        agenda, AGENDA | {"id": "a-2", "customerId": other}, renamed={other: "other"}
    )
    assert renamed.content["customer_id"] == "other"
    [foreign] = imported(AGENDA | {"customerId": "窯"})
    assert "--rename" in refusals(foreign)["customerId"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schedulingAlgorithm": "Lottery"}, "schedulingAlgorithm"),
        ({"queueSize": "many"}, "queueSize"),
        ({"queueSize": -1}, "queueSize"),
        ({"queueSize": 1_000_000}, "queueSize"),
        ({"mappers": {"operationColour": ["red"]}}, "mappers.operationColour"),
        ({"mappers": {"operationType": "fire"}}, "mappers.operationType"),
        ({"mappers": {"paramMap": ["heat"]}}, "mappers.params[0]"),
        ({"isGlobal": [1]}, "isGlobal"),
        ({"allowedCustomerIds": "nora"}, "allowedCustomerIds"),
        ({"resourcePoolId": 7}, "resourcePoolId"),
        ({"id": {}, "title": "x"}, "id"),
        ({"title": ["x"]}, "title"),
    ],
)
def test_a_wrong_field_of_an_insight_is_named_with_its_remedy(change, field):
    [one] = imported(INSIGHT | change)
    assert list(refusals(one)) == [field]
    assert not one.content


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"customerId": None}, "customerId"),
        ({"operations": []}, "operations"),
        ({"operations": ["Fire"]}, "operations[0]"),
        ({"operations": [{"type": "fire"}]}, "operations[0].name"),
        ({"operations": [{"name": "Fire"}]}, "operations[0].type"),
        ({"params": {"maximumAttempts": "often"}}, "params.maximumAttempts"),
        ({"params": [1]}, "params"),
        (
            {"operations": [{"name": "F", "type": "f", "params": {"dependsOn": "G"}}]},
            "operations[0].params.dependsOn[0]",
        ),
        (
            {"operations": [{"name": "F", "type": "f", "params": {"dependsOn": 3}}]},
            "operations[0].params.dependsOn",
        ),
        (
            {"operations": [{"name": "F", "type": "f", "payload": "@<pop.payload::/x>"}]},
            "operations[0].payload",
        ),
    ],
)
def test_a_wrong_field_of_an_agenda_is_named_as_pop_names_it(change, field):
    [one] = imported(AGENDA | change)
    assert list(refusals(one)) == [field]
    assert not one.content


def test_fields_that_pop_did_not_have_are_named_and_left_out_or_refused():
    [one] = imported(INSIGHT | {"colour": "red"})
    assert "colour" in fates(one, "unknown")
    assert one.content
    [strict] = imported(INSIGHT | {"colour": "red"}, strict=True)
    assert "--strict" in refusals(strict)["colour"]
    [nested] = imported(AGENDA | {"operations": [{**AGENDA["operations"][0], "version": 1}]})
    assert "operations[0].version" in fates(nested, "unknown")


def test_what_pop_never_scheduled_is_paused_and_attempts_are_capped():
    [never] = imported(INSIGHT | {"queueSize": 0})
    assert never.content["paused"] is True
    [often] = imported(AGENDA | {"params": {"maximumAttempts": 999}})
    assert often.content["max_attempts"] == 20


def test_who_names_no_customer_gets_the_one_that_was_asked_for():
    [one] = imported(AGENDA | {"customerId": None}, customer="nora")
    assert one.content["customer_id"] == "nora"


def test_operations_that_add_others_become_appending_ones():
    adds = {"operations": [{"name": "Glaze", "type": "glaze", "id": "2"}], "params": {"a": 1}}
    makes = {"agenda.operation.generator": {"operationsJsonPointer": "/more"}}
    operations = [
        {"name": "Grow", "type": "updateAgenda", "payload": adds},
        {"name": "Plan", "type": "plan", "params": makes},
    ]
    [one] = imported(AGENDA | {"operations": operations})
    grow, plan, adding = parse_agenda(one.content).operations
    glaze = {"name": "Glaze", "type": "glaze"}
    assert (grow.type, grow.payload) == ("append", {"operations": [glaze]})
    assert plan.params == {}
    assert (adding.type, adding.payload) == ("append", {"operations": "@<Plan.out::/more>"})
    [insight] = imported(INSIGHT | {"mappers": {"operationType": ["updateAgenda"]}})
    assert insight.content["mappers"]["operation_types"] == ["append"]


def test_an_at_sign_before_a_token_stays_one():
    payload = {"to": "me@@<Shape.out>", "raw": "x@@<y"}
    operations = [AGENDA["operations"][0], {"name": "Mail", "type": "mail", "payload": payload}]
    [one] = imported(AGENDA | {"operations": operations})
    written = one.content["operations"][1]["payload"]
    assert written == {"to": "me@@@<Shape.out>", "raw": "x@@@@<y"}


def test_agendas_that_ended_in_pop_are_not_run_and_progress_is_dropped():
    progress = {"id": "p", "agendaId": "a-1", "processingState": "COMPLETE"}
    agenda, dropped = imported(AGENDA, progress)
    assert not agenda.content
    assert "ended in POP" in fates(agenda, "dropped")["operations"]
    assert set(fates(dropped, "dropped")) == {"id", "agendaId", "processingState"}
    running, _ = imported(AGENDA, progress | {"processingState": "EXECUTING"})
    assert running.content


def test_the_same_twice_is_taken_once_and_another_under_its_id_is_refused():
    first, second = imported(CUSTOMER, CUSTOMER)
    assert first.content
    assert not second.content
    assert not refusals(second)
    _, other = imported(CUSTOMER, CUSTOMER | {"title": "Another"})
    assert "remove one" in refusals(other)["id"]
