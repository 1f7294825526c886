"""The group `agenda`, against a server that notes what it is asked."""

import json
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from api_fakes import summary
from typer.testing import CliRunner

from pop_stream.api.agendas.views import agenda_view
from pop_stream.api.http.answers import encode
from pop_stream.api_models.commands import ListedAgenda, Selection
from pop_stream.api_models.queues import WhyView
from pop_stream.cli.agendas import FIELDS, app
from pop_stream.policy.lifecycle.states import State

RESULT = {
    "action": "cancel",
    "dry_run": False,
    "matched": 3,
    "commanded": 2,
    "skipped": {"succeeded": 1},
}


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_a_command_for_some_ids_tells_what_came_of_it(server):
    server.answers = [RESULT | {"matched": 4, "not_possible": {"no_body": 1}}]
    said = run("cancel", "a1", "a2", "--reason", "late")
    assert said.output.splitlines() == [
        "2 of 4 agendas sent: cancel",
        "  1 passed over: succeeded",
        "  1 not possible: no_body",
    ]
    ((method, path, body),) = server.asked
    assert (method, path) == ("POST", "/v1/commands")
    assert body == {
        "action": "cancel",
        "filter": {"ids": ["a1", "a2"]},
        "dry_run": False,
        "reason": "late",
    }


@pytest.mark.parametrize(
    ("arguments", "wish"),
    [
        (("hold",), {"reason": ""}),
        (("release",), {"reason": ""}),
        (("reprioritise", "--priority", "1"), {"reason": "", "priority": 1}),
        (("reprioritise", "--rank", "0"), {"reason": "", "rank": 0}),
        (("rerun",), {"reason": "", "operations": "failed", "hold": False}),
        (("rerun", "--all", "--hold"), {"reason": "", "operations": "all", "hold": True}),
        (("delete",), {}),
    ],
)
def test_agendas_are_chosen_by_what_is_known_of_them(server, arguments, wish):
    server.answers = [RESULT | {"dry_run": True}]
    said = run(*arguments, "--where", "customer=acme", "--where", "state=failed", "--dry-run")
    assert "would be sent" in said.output
    ((_, _, body),) = server.asked
    assert (
        body
        == {
            "action": arguments[0],
            "filter": {"customer_id": ["acme"], "state": ["failed"]},
            "dry_run": True,
        }
        | wish
    )


def test_a_list_is_read_page_by_page(server):
    agendas = [json.loads(msgspec.json.encode(_listed(f"a{n}"))) for n in range(3)]
    server.answers = [
        {"total": 9, "total_is_capped": True, "agendas": agendas[:2], "next": "x y"},
        {"total": 9, "total_is_capped": True, "agendas": agendas[2:], "next": "z"},
    ]
    said = run("list", "--where", "link=night", "--limit", "3", "--json")
    assert json.loads(said.output) == {
        "total": 9,
        "total_is_capped": True,
        "agendas": agendas,
    }
    assert [path for _, path, _ in server.asked] == [
        "/v1/agendas?link_id=night&order=newest&limit=3",
        "/v1/agendas?link_id=night&order=newest&limit=1&cursor=x+y",
    ]


def _listed(agenda_id):
    known = dict.fromkeys(ListedAgenda.__struct_fields__)
    known |= {"id": agenda_id, "state": State.READY, "attempt": 1, "customer_id": "acme"}
    known |= {"title": "", "priority": 5, "percent": 0.0, "message": ""}
    return ListedAgenda(**known)


def test_every_field_that_may_be_named_is_one_of_the_selection(server):
    page = {"total": 0, "total_is_capped": False, "agendas": [], "next": None}
    server.answers = [page]
    at = "2026-11-24T00:00:00Z"
    values = {"state": "failed", "waiting_for": "retry", "stopping": "expired"}
    values |= dict.fromkeys(("priority", "attempt"), "3")
    values |= {one: at for one in FIELDS if one.endswith(("_from", "_before"))}
    wanted = [f"{one}={values.get(one, 'x')}" for one in FIELDS]
    run("list", *(part for one in wanted for part in ("--where", one)))
    ((_, path, _),) = server.asked
    asked = parse_qs(urlsplit(path).query)
    assert asked.keys() - {"order", "limit"} == Selection.model_fields.keys() - {"ids"}


def test_a_list_on_a_terminal_says_how_many_there_are(server):
    page = {"total": 0, "total_is_capped": False, "agendas": [], "next": None}
    server.answers = [page, page | {"total": 10_000, "total_is_capped": True}]
    assert run("list").output.rstrip().endswith("0 of 0")
    assert "0 of 10000 or more" in run("list").output


def test_callbacks_are_a_table_or_the_apis_answer(server):
    at = "2026-03-01T12:00:00Z"
    one = {
        "id": "a/1", "url": "https://x/", "state": "waiting", "tries": 3, "due_at": at,
        "created_at": at, "ended_at": None, "reason": "answered with 503",
    }  # fmt: skip
    server.answers = [{"callbacks": [one]}] * 2
    shown = run("callbacks", "a1").output
    assert "waiting" in shown
    assert "503" in shown
    assert json.loads(run("callbacks", "a1", "--json").output) == {"callbacks": [one]}


def test_why_is_explained_in_words(server):
    known = dict.fromkeys(WhyView.__struct_fields__)
    server.answers = [known | {"id": "a/1", "state": "ready", "why": "position 3 of 9"}]
    assert run("why", "a/1").output == "position 3 of 9\n"
    assert server.asked[0][1] == "/v1/agendas/a%2F1/why"


def test_all_is_known_as_json(server):
    whole = json.loads(encode(agenda_view(summary("a1"), seen_by=None)))
    server.answers = [whole]
    assert json.loads(run("show", "a1").output) == whole


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cancel",), "name the agendas to cancel by id, or choose them with --where"),
        (
            ("cancel", "--where", "colour=red"),
            "with one of customer, insight, link, external, correlation, template, puller",
        ),
        (("cancel", "--where", "state"), "write FIELD=VALUE"),
    ],
)
def test_a_command_never_means_everything_by_mistake(arguments, said):
    error = run(*arguments).exception
    assert said in str(error)


def test_nothing_that_fits_is_a_failure(server):
    server.answers = [RESULT | {"matched": 0, "commanded": 0, "skipped": {}}]
    assert "no agenda fits" in str(run("cancel", "a9").exception)
