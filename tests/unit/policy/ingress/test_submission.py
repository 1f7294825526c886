"""A submission is an agenda, or a template to run."""

import json
import re

import pytest

from pop_stream.model.definitions import (
    Customer,
    Definitions,
    Insight,
    Mappers,
    VersionedTemplate,
)
from pop_stream.model.errors import ForbiddenError, MissingDefinitionError, SubmissionError
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.model.template import AgendaTemplate
from pop_stream.policy.ingress.admission import Admission, parse_submission

SKELETON = {"customer_id": "acme", "operations": [{"name": "a", "type": "noop"}]}


def template(**changes):
    return VersionedTemplate(AgendaTemplate(id="t", agenda=SKELETON, **changes), 4)


def parse(document, **changes):
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_submission(text, {"t": template(**changes)})


def test_an_agenda_is_itself():
    assert parse(SKELETON).template is None


def test_a_run_is_the_agenda_that_it_makes():
    made = parse({"template_id": "t", "id": "a1"})
    assert (made.id, made.template.id, made.template.version) == ("a1", "t", 4)


ACME = Principal("a program of acme's", "acme", frozenset({Role.SUBMIT}))


@pytest.mark.parametrize(
    ("expected", "principal", "runs_as"),
    [
        ({}, ACME, "acme"),
        ({"customer_id": None}, ACME, "acme"),
        ({"customer_id": "gamma"}, ACME, "gamma"),  # which is refused at its entry
        ({}, ANYONE, "beta"),
        ({"customer_id": "gamma"}, ANYONE, "gamma"),
    ],
)
def test_a_customer_runs_a_template_for_itself_whomever_that_names(
    expected, principal, runs_as
):
    agenda = {**SKELETON, "customer_id": "beta"}
    known = {"t": VersionedTemplate(AgendaTemplate(id="t", agenda=agenda), 1)}
    run = json.dumps({"template_id": "t", **expected}).encode()
    assert parse_submission(run, known, principal).customer_id == runs_as


def test_the_word_alone_makes_no_run():
    assert parse({**SKELETON, "params": {"template_id": "t"}}).template is None


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"template_id": "t", "priority": 0}, "priority"),
        ({"template_id": "t", "priority": "3"}, "priority"),
        ({"template_id": 3}, "template_id"),
        ({"template_id": "t", "operations": []}, "operations"),
        (b'{"template_id": ', "agenda"),
        (b'["template_id"]', "agenda"),
    ],
)
def test_a_wrong_submission_is_answered_with_why(document, field):
    with pytest.raises(SubmissionError) as error:
        parse(document)
    assert error.value.issues[0].field == field


def test_a_template_that_does_not_exist_or_not_for_the_customer_is_missing():
    for document, changes in (
        ({"template_id": "none"}, {}),
        ({"template_id": "t"}, {"owner": "beta"}),
    ):
        with pytest.raises(MissingDefinitionError) as error:
            parse(document, **changes)
        assert error.value.issues[0].field == "template_id"
    assert parse({"template_id": "t"}, owner="beta", visibility="global").template


# ---- whose agendas one may submit ----

FARM = Insight(
    id="farm",
    owner="studio",
    visibility="global",
    mappers=Mappers(operation_types=("render",)),
)
ELSEWHERE = Insight(id="elsewhere", mappers=Mappers(operation_types=("mail",)))
CUSTOMERS = {
    "acme": Customer(id="acme", submitters=("studio",)),
    "beta": Customer(id="beta"),
    "studio": Customer(id="studio"),
}
STUDIO = Principal("a program of studio's", "studio", frozenset({Role.SUBMIT}))


def admission(**changes):
    known = Definitions(
        customers={CustomerId(one): CUSTOMERS[one] for one in CUSTOMERS},
        insights={InsightId(one.id): one for one in (FARM, ELSEWHERE)},
    )
    return Admission(known, max_agenda_bytes=10_000, **changes)


def admitted(principal=STUDIO, customer_id="acme", kind="render", suggested_id=None, **fields):
    body = {"customer_id": customer_id, "operations": [{"name": "a", "type": kind}], **fields}
    return admission().admit(
        json.dumps(body).encode(),
        principal,
        new_id=lambda: "made",
        suggested_id=suggested_id,
    )


def test_the_owner_of_an_insight_submits_for_a_customer_that_lets_it():
    for suggested in (None, "key-1"):
        one = admitted(suggested_id=suggested)
        assert (one.customer_id, one.insight_id, one.agenda_id) == ("acme", "farm", "made")
    # As the ingest reads what the API has published.
    again = admission().admit(one.value, ANYONE, new_id=lambda: "another")
    assert (again.customer_id, again.insight_id, again.agenda_id) == ("acme", "farm", "made")


@pytest.mark.parametrize(
    ("submission", "why"),
    [
        ({"customer_id": "beta"}, "name it in their `submitters`"),
        ({"customer_id": "nobody-at-all"}, "name it in their `submitters`"),
        ({"kind": "mail"}, "an insight of one's own"),
        ({"id": "order-7"}, "leave id out"),
        ({"principal": ACME, "customer_id": "studio"}, "name it in their `submitters`"),
        (
            {"principal": Principal("reads", "studio", frozenset({Role.READ}))},
            "lacks the role 'submit'",
        ),
    ],
)
def test_nobody_else_does_and_no_more_than_that(submission, why):
    """That a global insight serves them gives its owner no right to their account."""
    with pytest.raises(ForbiddenError, match=re.escape(why)) as refused:
        admitted(**submission)
    assert "nobody-at-all" not in str(refused.value)


def test_only_defined_customers_may_submit_where_that_is_set():
    text = json.dumps({"customer_id": "new", "operations": [{"name": "a", "type": "mail"}]})
    free, strict = admission(), admission(defined_customers_only=True)
    assert free.admit(text.encode(), ANYONE, new_id=lambda: "made").customer_id == "new"
    with pytest.raises(MissingDefinitionError) as refused:
        strict.admit(text.encode(), ANYONE, new_id=lambda: "made")
    [issue] = refused.value.issues
    assert (issue.field, issue.value) == ("customer_id", "new")
    assert "define the customer" in issue.message
    known = text.replace('"new"', '"beta"').encode()
    assert strict.admit(known, ANYONE, new_id=lambda: "made").customer_id == "beta"
