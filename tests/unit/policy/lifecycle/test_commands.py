"""What may be wanted in which state, and what running an agenda again keeps."""

import json

import msgspec
import pytest
from lifecycle_events import START, at, operation

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.errors import StateError, SubmissionError
from pop_stream.model.events.base import AppendedOperation
from pop_stream.model.events.codec import decode_routed, encode
from pop_stream.policy.lifecycle.rerun import has_effect, reset, restart_event
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary

TABLE = """
state      cancel  hold  release  reprioritise
ready      do      do    done     do
waiting    do      do    done     do
held       do      done  do       do
emitted    do      -     done     -
running    do      -     done     -
retrying   do      do    done     do
succeeded  -       -     -        -
failed     -       -     -        -
cancelled  done    -     -        -
expired    -       -     -        -
refused    -       -     -        -
"""

# fetch -> pack -> store, and mail on its own
AGENDA = {
    "id": "a1",
    "customer_id": "acme",
    "rank": 7,
    "max_attempts": 2,
    "expires_at": "2026-01-01T01:00:00Z",
    "operations": [
        {"name": "mail", "type": "mail"},
        {"name": "fetch", "type": "http"},
        {"name": "pack", "type": "zip", "payload": "@<fetch.out>"},
        {"name": "store", "type": "sql", "depends_on": ["pack"]},
    ],
}
PARSED = parse_agenda(json.dumps(AGENDA))


def cases():
    heading, *rows = [line.split() for line in TABLE.strip().splitlines()]
    for state, *cells in rows:
        yield from ((state, *pair) for pair in zip(heading[1:], cells, strict=True))


def ended(state=State.FAILED, done=("fetch", "pack", "mail"), **changes):
    operations = {name: operation(name, "succeeded") for name in done}
    operations["store"] = operation("store", "failed")
    known = {"agenda_id": "a1", "state": state, "attempt": 3, "insight_id": "files"}
    body = json.dumps(AGENDA).encode()
    return Summary(**(known | {"operations": operations, "body": body} | changes))


def again(summary=None, what="failed", *, now=START, hold=False):
    return restart_event(
        summary or ended(), PARSED, again=what, hold=hold, by="ann", reason="", now=now
    )


@pytest.mark.parametrize(("state", "action", "verdict"), list(cases()))
def test_each_command_in_each_state(state, action, verdict):
    summary = Summary(agenda_id="a1", state=State(state))
    if verdict == "-":
        with pytest.raises(StateError, match=f"'a1' is {state}; {action} needs"):
            has_effect(action, summary)
    else:
        assert has_effect(action, summary) is (verdict == "do")


def test_what_stops_already_need_not_be_cancelled():
    stopping = Summary(agenda_id="a1", state=State.RUNNING, stopping="cancelled")
    assert not has_effect("cancel", stopping)


APPENDED = (("thumb", "fetch", []), ("post", "mail", ["thumb"]), ("log", "post", []))
"""Operations that were appended: name, by which one, and what each depends on."""


def ended_with_appended():
    new = ({"name": name, "type": "work", "depends_on": after} for name, _, after in APPENDED)
    return ended(
        appended=tuple(
            AppendedOperation(by=by, at=START, operation=msgspec.Raw(msgspec.json.encode(one)))
            for (_, by, _), one in zip(APPENDED, new, strict=True)
        )
    )


@pytest.mark.parametrize(
    ("what", "anew"),
    [
        ("all", "all"),
        ("failed", ()),
        (["pack"], ("pack", "store")),
        (["fetch"], ("fetch", "pack", "store")),
        (["mail"], ("mail",)),
        (["mail", "fetch"], "all"),
        ([], ()),
    ],
)
def test_what_is_run_anew_takes_along_what_depends_on_it(what, anew):
    assert again(what=what).reset == anew


@pytest.mark.parametrize(
    ("what", "anew"),
    [
        ("all", "all"),
        ("failed", ()),
        (["thumb"], ("thumb", "post", "log")),
        (["post"], ("post", "log")),
        (["log"], ("log",)),
        (["mail"], ("mail", "post", "log")),
        (["fetch"], ("fetch", "pack", "store", "thumb", "post", "log")),
    ],
)
def test_what_was_appended_is_run_again_by_name_and_with_what_it_follows(what, anew):
    assert again(ended_with_appended(), what).reset == anew


def test_an_operation_that_is_not_there_is_named():
    with pytest.raises(SubmissionError, match="operations = pick: no operation of this agenda"):
        again(what=["pack", "pick"])


def test_it_runs_again_as_the_next_attempt_with_all_its_settings():
    event = again()
    placed = decode_routed(event.routed)
    assert (event.attempt, placed.attempt) == (4, 4)
    assert event.reset == ()
    assert (event.insight_id, event.by) == ("files", "ann")
    assert (placed.customer_id, placed.rank, placed.max_attempts) == ("acme", 7, 2)
    assert placed.operation_types == ("mail", "http", "zip", "sql")
    assert placed.expires_at == PARSED.expires_at
    assert not placed.held
    assert json.loads(bytes(placed.agenda)) == AGENDA


def test_pullers_of_a_rerun_do_not_learn_where_the_customer_is_called_back():
    body = json.dumps(AGENDA | {"callback_url": "https://acme.example/5ecret"}).encode()
    event = restart_event(
        ended(body=body), parse_agenda(body), again="failed", hold=False, by="ann", reason="",
        now=START,
    )  # fmt: skip
    assert b"5ecret" not in encode(event)


def test_a_deadline_that_has_passed_does_not_end_it_at_once():
    assert decode_routed(again(now=at(7200)).routed).expires_at is None


def test_it_can_be_reset_without_running():
    assert decode_routed(again(hold=True).routed).held


@pytest.mark.parametrize("state", [State.READY, State.RUNNING, State.RETRYING, State.REFUSED])
def test_only_what_has_ended_runs_again(state):
    with pytest.raises(StateError, match="rerun needs"):
        again(ended(state))


def test_what_depends_on_two_that_are_run_anew_is_run_anew_once():
    names = {"left": ["root"], "right": ["root"], "end": ["left", "right"], "other": []}
    operations = parse_agenda({
        "customer_id": "acme",
        "operations": [
            {"name": "root", "type": "t"},
            *({"name": one, "type": "t", "depends_on": on} for one, on in names.items()),
        ],
    }).operations  # fmt: skip
    done = {one: operation(one, "succeeded") for one in ("root", *names)}
    summary = Summary(agenda_id="a1", state=State.FAILED, operations=done)
    assert reset(operations, summary, ["root"]) == ("root", "left", "right", "end")
    assert reset(operations, summary, ["right"]) == ("right", "end")
