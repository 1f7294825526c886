"""Who gets the next agenda, however often and in whatever order processes speak."""

import msgspec
import pytest
from backlogs import START

from pop_stream.model.events.pull import PollWanted
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.policy.http_pull import PROCESS_TIMEOUT_S, PollDemand


def wanted(count, api_id="x", received=0):
    return PollWanted(insight_id="media", api_id=api_id, wanted=count, received={"d": received})


def emitted(agenda_id="a1", attempt=1, lease_ms=60_000, body=b"{}"):
    return EmittedAgenda(
        agenda_id=agenda_id,
        insight_id="media",
        customer_id="acme",
        attempt=attempt,
        accepted_at=START,
        emitted_at=START,
        lease_ms=lease_ms,
        agenda=msgspec.Raw(body),
    )


@pytest.fixture
def demand():
    return PollDemand("d")


def test_nobody_is_sent_more_than_it_has_callers_for(demand):
    demand.update(wanted(2), 0)
    assert demand.capacity == 2
    assert [demand.next_process() for _ in range(3)] == ["x", "x", None]


def test_what_is_said_again_before_agendas_arrive_counts_once(demand):
    demand.update(wanted(1), 0)
    assert demand.next_process() == "x"
    demand.update(wanted(1), 1)  # the agenda is on its way
    assert demand.capacity == 0
    demand.update(wanted(0, received=1), 2)
    demand.update(wanted(1, received=1), 3)  # another caller
    assert demand.next_process() == "x"


def test_processes_take_turns(demand):
    demand.update(wanted(2, "x"), 0)
    demand.update(wanted(2, "y"), 0)
    assert [demand.next_process() for _ in range(5)] == ["x", "y", "x", "y", None]


def test_process_that_fell_silent_gets_nothing(demand):
    demand.update(wanted(1, "x"), 0)
    demand.update(wanted(1, "y"), PROCESS_TIMEOUT_S)
    demand.expire_silent(PROCESS_TIMEOUT_S + 0.1)
    assert [demand.next_process() for _ in range(2)] == ["y", None]


def test_process_that_comes_back_is_not_charged_with_what_it_got_before(demand):
    demand.update(wanted(1), 0)
    assert demand.next_process() == "x"
    demand.expire_silent(PROCESS_TIMEOUT_S + 0.1)
    demand.update(wanted(1, received=1), 10)
    assert [demand.next_process(), demand.next_process()] == ["x", None]


def test_what_arrives_late_of_before_a_silence_makes_no_room(demand):
    demand.update(wanted(1, received=3), 0)
    demand.update(wanted(1, received=4), 1)
    assert demand.capacity == 1


def test_process_that_speaks_is_not_silent(demand):
    demand.update(wanted(1), 0)
    demand.update(wanted(1), PROCESS_TIMEOUT_S)
    demand.expire_silent(PROCESS_TIMEOUT_S + 0.1)
    assert demand.next_process() == "x"


def test_counts_of_other_dispatchers_do_not_count(demand):
    reported = PollWanted(insight_id="media", api_id="x", wanted=1, received={"other": 9})
    demand.update(reported, 0)
    assert [demand.next_process(), demand.next_process()] == ["x", None]
    reported = PollWanted(insight_id="media", api_id="x", wanted=1, received={"other": 10})
    demand.update(reported, 1)
    assert demand.next_process() is None, "what was sent has not arrived"


def test_returned_agenda_goes_to_the_next_who_wants_one_while_its_lease_may_run(demand):
    for number in range(4):
        demand.put_back(emitted(f"a{number}"), number)
    assert demand.take_returned() is None
    demand.update(wanted(2), 30)
    demand.expire_silent(30)  # half a lease after the first was put back
    assert demand.take_returned().agenda_id == "a1"
    demand.expire_silent(32.9)
    assert demand.take_returned().agenda_id == "a3"
    assert demand.take_returned() is None
