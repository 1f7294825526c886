"""The group `dead-letters`, against a server that notes what it is asked."""

import base64
import json

import pytest
from typer.testing import CliRunner

from pop_stream.cli.dead_letters import app
from pop_stream.operations.errors import UsageError

ID = "a" * 20
LETTER = {
    "id": ID, "kind": "refused", "state": "open", "code": "submission_refused",
    "reason": "operations: too few", "part": "ingest", "at": "2026-01-01T00:00:00Z",
    "customer_id": "acme", "insight_id": None, "agenda_id": "a1", "webhook_id": None,
    "url": None, "topic": "pop.submissions", "partition": 0, "offset": 3, "truncated": False,
    "is_redrivable": True, "settled_at": None, "settled_by": None, "settled_reason": None,
}  # fmt: skip
RESULT = {
    "action": "redrive", "dry_run": False, "matched": 2, "outcomes": {"done": 2},
    "has_more": False, "failures": [],
}  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_letters_are_listed_by_what_is_asked_for(server):
    server.answers = [{"letters": [LETTER], "next": None}]
    said = run("list", "--where", "kind=refused", "--where", "customer=acme")
    assert ID in said.output
    [(_, path, _)] = server.asked
    assert "kind=refused" in path
    assert "customer_id=acme" in path


def test_reasons_are_counted(server):
    reason = {
        "kind": "refused", "code": "quota", "letters": 7, "oldest_at": LETTER["at"],
        "newest_at": LETTER["at"], "example": "too many",
    }  # fmt: skip
    server.answers = [{"total": 7, "total_is_capped": False, "reasons": [reason]}]
    assert "too many" in run("list", "--reasons").output


def test_a_letter_is_shown_with_its_value(server):
    value = base64.b64encode(b'{"id": 1}').decode()
    server.answers = [LETTER | {"value_base64": value, "issues": []}]
    said = run("show", ID).output
    assert '{"id": 1}' in said
    assert "kind: refused" in said


def test_what_could_not_be_done_fails_the_command(server):
    failure = {
        "id": ID, "action": "redrive", "outcome": "refused", "state": "open", "detail": "no"
    }  # fmt: skip
    server.answers = [RESULT, RESULT | {"outcomes": {"done": 1, "refused": 1},
                                        "failures": [failure]}]  # fmt: skip
    done = run("redrive", ID, "--reason", "mended")
    assert (done.exit_code, done.output) == (0, "redriven: 2 of 2\n")
    assert server.asked[0][2]["reason"] == "mended"
    part = run("redrive", "--where", "code=quota")
    assert (part.exit_code, f"{ID} refused: no" in part.output) == (1, True)


def test_the_last_line_is_json(server):
    server.answers = [RESULT]
    assert json.loads(run("discard", ID, "--json").output.splitlines()[-1]) == RESULT


@pytest.mark.parametrize(
    "arguments", [("redrive",), ("list", "--where", "colour=red"), ("discard", "no-id")]
)
def test_wrong_usage_says_what_is_right(arguments):
    assert isinstance(run(*arguments).exception, UsageError)
