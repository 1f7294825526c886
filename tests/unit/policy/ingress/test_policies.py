"""Admission policies: what the built-in ones say, and how verdicts add up."""

import json
from itertools import count

import pytest
from pydantic import ValidationError

from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.model.errors import AdmissionDeniedError, Issue
from pop_stream.model.identity import ANYONE
from pop_stream.model.template import AgendaTemplate
from pop_stream.policy.ingress.admission import Admission
from pop_stream.policy.ingress.policies import (
    BUILT_IN,
    Allow,
    Defer,
    Deny,
    GuardedPolicy,
)

OPERATION = {"name": "scan", "type": "scan", "payload": {"host": "a"}}


def admission(*, customer=None, insight=None, template=None, policies=BUILT_IN):
    scan = Insight(id="scan", mappers=Mappers(operation_types=("scan",)), **(insight or {}))
    made = {"customer_id": "acme", "operations": [OPERATION]}
    return Admission(
        Definitions().with_changes(
            [
                ("insight/scan", scan, 1),
                ("customer/acme", Customer(id="acme", **(customer or {})), 1),
                ("template/t", AgendaTemplate(id="t", agenda=made, **(template or {})), 1),
            ]
        ),
        max_agenda_bytes=100_000,
        policies=policies,
    )


def admit(by, document=None, **how):
    numbers = count(1)
    known = {"customer_id": "acme", "operations": [OPERATION]}
    return by.admit_agenda(
        by.parse(json.dumps(document or known).encode()),
        ANYONE,
        new_id=lambda: f"n{next(numbers)}",
        **how,
    ).agenda


def denied(by, document=None):
    with pytest.raises(AdmissionDeniedError) as refused:
        admit(by, document)
    return [(one.field, one.value) for one in refused.value.issues]


def test_where_nobody_uses_policies_none_is_asked():
    assert not admission().has_policies
    assert admit(admission()).hold is False


def test_what_is_not_enabled_takes_nothing():
    assert denied(admission(insight={"enabled": False})) == [("insight_id", "scan")]
    by = admission(template={"enabled": False})
    assert denied(by, {"template_id": "t"}) == [("template_id", "t")]
    assert admit(by)  # without the template it goes there all the same


@pytest.mark.parametrize("gate", ["insight", "template"])
def test_all_labels_are_needed(gate):
    asked = {gate: {"needs_labels": ("level-2", "eu")}}
    run = {"template_id": "t"}
    for labels in ((), ("eu",), ("level-3", "eu")):
        by = admission(customer={"labels": labels}, **asked)
        assert denied(by, run) == [("customer_id", "acme")]
    assert admit(admission(customer={"labels": ("eu", "level-2", "x")}, **asked), run)


def test_payloads_are_held_to_the_schema_of_their_operation_type():
    schema = {
        "type": "object",
        "required": ["host"],
        "properties": {"host": {"type": "string"}},
    }
    by = admission(insight={"payload_schemas": {"scan": schema, "never": False}})
    assert admit(by)
    wrong = {"customer_id": "acme", "operations": [{**OPERATION, "payload": {"host": 7}}]}
    [(field, _)] = denied(by, wrong)
    assert field.startswith("operations[0].payload")
    other = [OPERATION, {"name": "x", "type": "never"}]
    assert denied(by, {"customer_id": "acme", "operations": other})[0][0].startswith(
        "operations[1].payload"
    )
    later = [OPERATION, {"name": "x", "type": "scan", "payload": "@<scan.out>"}]
    assert admit(by, {"customer_id": "acme", "operations": later})


def test_a_schema_that_is_none_is_refused_when_it_is_defined():
    with pytest.raises(ValidationError, match="payload_schemas of 'scan' cannot be used"):
        Insight(id="scan", payload_schemas={"scan": {"type": "nothing"}})


def test_insights_with_schemas_can_be_members_of_a_set():
    one, same = (Insight(id="scan", payload_schemas={"scan": {}}) for _ in range(2))
    assert {one} == {same} != {Insight(id="scan")}


class Says:
    def __init__(self, verdict):
        self.verdict = verdict
        self.asked = []

    def decide(self, request):
        self.asked.append(request)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


def test_the_first_denial_decides_and_all_deferrals_are_given():
    no = Deny([Issue("x", "y", "no")])
    assert denied(admission(policies=(*BUILT_IN, Says(Defer("slow")), Says(no)))) == [
        ("x", "y")
    ]
    held = admit(
        admission(policies=(*BUILT_IN, Says(Defer("a")), Says(Allow()), Says(Defer("b"))))
    )
    assert (held.hold, held.hold_reason) == (True, "a; b")


def test_a_policy_knows_customer_insight_and_template():
    one = Says(Allow())
    by = admission(customer={"labels": ("x",)}, policies=(*BUILT_IN, one))
    admit(by, {"template_id": "t"})
    [request] = one.asked
    assert (request.customer.labels, request.is_defined) == (("x",), True)
    assert (request.insight.id, request.template.id) == ("scan", "t")


def test_what_the_api_let_in_is_not_asked_about_again():
    by = admission(insight={"enabled": False})
    assert admit(by, standing="admitted").hold is False


def test_what_may_have_been_let_in_before_a_crash_is_held_and_not_denied():
    held = admit(admission(insight={"enabled": False}), standing="perhaps")
    assert held.hold
    assert held.hold_reason.startswith(
        "denied now, but perhaps let in before a restart: insight"
    )


@pytest.mark.parametrize("verdict", [ValueError("boom"), None, True, Deny([]), "allow"])
def test_a_policy_that_fails_denies(verdict):
    errors = []
    policy = GuardedPolicy("mine", Says(verdict), errors.append)
    assert denied(admission(policies=(*BUILT_IN, policy))) == [("admission_policy", "mine")]
    assert len(errors) == 1


@pytest.mark.parametrize("verdict", [Allow(), Defer("x"), Deny([Issue("a", "b", "c")])])
def test_a_policy_that_works_has_its_way(verdict):
    assert GuardedPolicy("mine", Says(verdict), lambda _: None).decide(None) == verdict
