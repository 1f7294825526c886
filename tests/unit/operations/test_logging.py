"""Logs on standard error, of structlog and the standard library alike."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging
import structlog
from pop_stream.operations import logging as logs
from pop_stream.settings import Settings

logs.configure(Settings())
structlog.get_logger().debug("too.detailed")
structlog.get_logger().info("agenda.claimed", agenda_id="a1")
logging.getLogger("aiokafka").info("chatter of a library")
logging.getLogger("aiokafka").warning("broker %s is away", 1)
"""


def log(program=PROGRAM, **environment):
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_production_logs_are_one_json_object_per_line():
    ours, library = (json.loads(line) for line in log(POP_LOG_FORMAT="json"))
    assert (ours["event"], ours["agenda_id"], ours["level"]) == ("agenda.claimed", "a1", "info")
    assert (library["event"], library["level"]) == ("broker 1 is away", "warning")
    assert ours["timestamp"].endswith("Z")


def test_console_logs_are_text():
    ours, library = log(POP_LOG_FORMAT="console")
    assert "agenda.claimed" in ours
    assert "broker 1 is away" in library


def test_level_silences_what_is_below():
    assert len(log(POP_LOG_LEVEL="warning")) == 1


def test_debug_lets_libraries_speak():
    assert len(log(POP_LOG_LEVEL="debug")) == 4


AWAY = """
import logging
import structlog
from pop_stream.operations import logging as logs
from pop_stream.settings import Settings

logs.configure(Settings(log_format="json"))
for _ in range(50):
    for node in (2, 3):
        logging.getLogger("aiokafka").error("Unable connect to node with id %s", node)
        logging.getLogger("confluent_kafka").error("FAIL node %s", node)
    structlog.get_logger().info("agenda.claimed")
logging.getLogger("faust").error("it crashed")
"""


def test_a_library_says_a_thing_once_and_calls_no_error_what_it_tries_again():
    answer = [json.loads(line) for line in log(AWAY)]
    assert [
        (one["level"], one["event"]) for one in answer if one["event"] != "agenda.claimed"
    ] == [
        ("warning", "Unable connect to node with id 2"),
        ("warning", "FAIL node 2"),
        ("warning", "Unable connect to node with id 3"),
        ("warning", "FAIL node 3"),
        ("error", "it crashed"),
    ]
    assert len(answer) == 55


def test_debug_tells_all_that_a_library_says():
    assert len(log(AWAY.replace("log_format", "log_level='debug', log_format"))) == 251


FAILING = """
import structlog
from pop_stream.operations import logging as logs
from pop_stream.settings import Settings

logs.configure(Settings())

def authenticate(token):
    raise ValueError("it does not fit")

try:
    authenticate("pop_" + "s3cret")
except ValueError:
    structlog.get_logger().exception("request.failed")
"""


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_trace_shows_no_values_of_variables(form):
    answer = "\n".join(log(FAILING, POP_LOG_FORMAT=form))
    assert "it does not fit" in answer
    assert "authenticate" in answer
    assert "pop_s3cret" not in answer


def test_a_full_disk_costs_lines_and_nothing_else():
    with open("/dev/full", "w") as full:  # noqa: PTH123  # it takes nothing, as a full disk
        done = subprocess.run(  # noqa: S603  # our own program
            [sys.executable, "-c", PROGRAM + 'print("went on", flush=True)'],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
        )
    assert done.stdout == "went on\n"
