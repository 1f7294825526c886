"""A submission is an agenda, or a template to run."""

import json

import pytest

from pop_stream.model.definitions import VersionedTemplate
from pop_stream.model.errors import MissingDefinitionError, SubmissionError
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.template import AgendaTemplate
from pop_stream.policy.ingress.admission import parse_submission

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
