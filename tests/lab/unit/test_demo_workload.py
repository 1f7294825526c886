"""What the demo submits, and the definitions it comes with."""

import json
import tomllib
from pathlib import Path

import pytest

import pop_stream.cli.dev
import pop_stream.lab.demo.run
from pop_stream.lab.demo.handlers import handlers
from pop_stream.lab.demo.workload import FLOOD, QUIET, WEIGHTS, source_files, warm_up, workload
from pop_stream.model.agenda import parse_agenda
from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.definitions_file import parse_definitions_file
from pop_stream.policy.ingress.routing import InsightRouter

DEFINITIONS = Path(pop_stream.lab.demo.run.__file__).with_name("definitions.toml")


def definitions(file):
    return parse_definitions_file(tomllib.loads(file.read_text()))


def insights(file):
    return [one for one in definitions(file) if isinstance(one, Insight)]


@pytest.mark.parametrize("total", [10, 50, 300, 3160])
def test_quiet_customers_have_the_same_small_number(total):
    agendas = workload("r1", total).agendas
    assert sum(map(len, agendas.values())) == total
    quiet = [len(agendas[customer]) for customer in QUIET]
    assert len(set(quiet)) == 1
    assert min(quiet) >= 1
    assert len(agendas[FLOOD]) >= sum(quiet) / 2


def test_flood_is_submitted_first():
    assert next(iter(workload("r1", 50).agendas)) == FLOOD


def test_ids_belong_to_one_run_only():
    first, second = workload("r1", 50).owners, workload("r2", 50).owners
    assert len(first) == len(second) == 50
    assert not set(first) & set(second)


@pytest.mark.parametrize("work", [workload("r1", 30), warm_up("r1")])
def test_agendas_are_valid_and_fit_the_insight(work):
    router = InsightRouter(insights(DEFINITIONS))
    for own in work.agendas.values():
        for document in own:
            agenda = parse_agenda(json.dumps(document))
            assert router.route(agenda) == "files"
            assert agenda.link_id == work.link(agenda.customer_id)


def test_every_operation_has_a_handler():
    agenda = workload("r1", 10).agendas[FLOOD][0]
    assert {operation["type"] for operation in agenda["operations"]} <= set(handlers.types)


def test_weights_on_the_screen_are_those_in_force():
    customers = [one for one in definitions(DEFINITIONS) if isinstance(one, Customer)]
    assert {one.id for one in customers} == {FLOOD, *QUIET}
    assert {one.id: one.weight for one in customers if one.weight != 1} == WEIGHTS


def test_definitions_of_dev_are_sound():
    assert insights(pop_stream.cli.dev.DEFINITIONS)


def test_every_installation_has_files_enough():
    assert len(source_files()) > 100
