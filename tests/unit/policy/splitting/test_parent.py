"""The agenda of a run that divides itself, and the children that it submits."""

import json

import pytest

from pop_stream.model.agenda import encode_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.model.references import resolve
from pop_stream.model.template import TEMPLATE_CALL, AgendaTemplate
from pop_stream.policy.splitting.parent import ParentAgenda, SplitJob, as_split, expand_run

TEMPLATE = {
    "id": "report",
    "title": "Report",
    "params": {"format": {"type": "string", "default": "pdf"}},
    "payload_schema": {"type": "object", "required": ["stores"]},
    "agenda": {
        "customer_id": "acme",
        "priority": 3,
        "link_id": "reports",
        "params": {"default_insight": "reports"},
        "operations": [
            {"name": "sum", "type": "sum", "payload": {"stores": "@<pop.payload::/stores>"}},
            {"name": "send", "type": "mail", "payload": ["@<sum.out>", "@<format>"]},
        ],
    },
    "split": {"attributes": ["store"], "params": {"default_insight": "splits"}},
}
PAYLOAD = {"stores": ["s1", "@<s2>"], "isolate_stores": True}
PARENT = ParentAgenda(id="run-7@acme", customer_id="acme", link_id="L")


def run(changes=None, **call):
    template = AgendaTemplate.model_validate({**TEMPLATE, **(changes or {})})
    return expand_run(template, TEMPLATE_CALL(**{"payload": PAYLOAD, **call}), version=4)


def job_of(agenda):
    """What the handler is given: the payload, its references resolved."""
    return SplitJob.model_validate(resolve(agenda.operations[0].payload, {}))


def children_of(agenda, parent=PARENT):
    job = job_of(agenda)
    template, parts = job.agenda_template(), enumerate(job.cut().payloads(), 1)
    return [json.loads(encode_agenda(job.numbered(template, parent, one))) for one in parts]


def test_run_becomes_one_agenda_with_one_operation():
    agenda = run()
    assert [(one.name, one.type) for one in agenda.operations] == [("split", "split")]
    assert (agenda.customer_id, agenda.priority, agenda.link_id) == ("acme", 3, "reports")
    assert agenda.params == {"default_insight": "splits"}
    assert (agenda.title, agenda.template.id, agenda.template.version) == (
        "Report",
        "report",
        4,
    )


def test_template_without_split_is_run_as_ever():
    agenda = run({"split": None})
    assert [one.type for one in agenda.operations] == ["sum", "mail"]
    with pytest.raises(SubmissionError, match="not divided"):
        as_split(AgendaTemplate.model_validate({**TEMPLATE, "split": None}))


def test_children_are_runs_of_the_template_with_a_part_of_the_payload():
    first, second = children_of(run())
    assert first["id"] == "run-7.1@acme"
    assert (first["parent_id"], first["link_id"], first["customer_id"]) == (
        "run-7@acme",
        "L",
        "acme",
    )
    assert first["template"] == {"id": "report", "version": 4}
    assert first["params"] == {"default_insight": "reports"}
    assert first["operations"][0]["payload"] == {"stores": ["s1"]}
    assert first["operations"][1]["payload"] == ["@<sum.out>", "pdf"]
    assert second["operations"][0]["payload"] == {"stores": ["@@<s2>"]}  # data, as it was given


def test_fields_of_a_run_are_the_parents_the_childrens_or_of_both():
    agenda = run(
        id="x", hold=True, cost_s=9.0, rank=2, not_before="2030-01-01T00:00:00Z", priority=7
    )
    assert (agenda.id, agenda.hold, agenda.cost_s, agenda.rank) == ("x", True, None, 2)
    [child, _] = children_of(agenda)
    assert (child["cost_s"], child["rank"], child["priority"]) == (9.0, 2, 7)
    assert not {"hold", "not_before"} & child.keys()


def test_children_belong_to_the_parents_customer_whatever_the_payload_says():
    template = {**TEMPLATE["agenda"], "customer_id": "@<pop.payload::/who>"}
    agenda = run({"agenda": template}, payload={**PAYLOAD, "who": "globex"})
    assert {one["customer_id"] for one in children_of(agenda)} == {"acme"}


def test_the_same_run_gives_the_same_children_again():
    assert children_of(run()) == children_of(run())


def test_whats_wrong_is_found_when_it_is_submitted():
    for payload, field in (
        ({"stores": [[1]], "isolate_stores": True}, "payload.stores"),
        ({"isolate_stores": True}, "payload"),  # breaks the schema
        ({"stores": [1], "period": "soon", "nominal": "2026-01-01"}, "payload.period"),
    ):
        with pytest.raises(SubmissionError) as refused:
            run(payload=payload)
        assert refused.value.issues[0].field.startswith(field)
    with pytest.raises(SubmissionError) as refused:
        run(params={"format": 1})
    assert refused.value.issues[0].field == "params.format"


@pytest.mark.parametrize(
    ("parent", "child", "link"),
    [
        ("a", "a.3", "a"),
        ("a@acme", "a.3@acme", "a"),
        ("nightly.20260101T000000Z@acme", "nightly.20260101T000000Z.3@acme", None),
    ],
)
def test_id_of_a_child_is_its_parents_with_its_number(parent, child, link):
    known = ParentAgenda(id=parent, customer_id="acme")
    assert known.child_id(3) == child
    assert known.children_link == link or link is None


def test_parent_with_a_long_id_has_children_with_ids_that_fit():
    known = ParentAgenda(id=f"{'x' * 128}@acme", customer_id="acme")
    named, customer = known.child_id(100_000).split("@")
    assert len(named) <= 128
    assert customer == "acme"
    other = ParentAgenda(id=f"{'x' * 127}y@acme", customer_id="acme")
    assert known.child_id(1) != other.child_id(1)
