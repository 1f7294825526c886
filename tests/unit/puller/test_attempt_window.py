from datetime import timedelta

import pytest
from backlogs import START

from pop_stream.puller.claiming.claims import AttemptWindow


def test_first_attempt_is_admitted_and_its_repeat_is_not():
    window = AttemptWindow()
    assert window.admit("a", 1, START)
    assert not window.admit("a", 1, START)


def test_newer_attempt_is_admitted_and_outdates_the_older():
    window = AttemptWindow()
    assert window.admit("a", 2, START)
    assert not window.admit("a", 1, START)
    assert window.admit("a", 3, START)
    assert not window.admit("a", 2, START)


def test_agendas_do_not_concern_each_other():
    window = AttemptWindow()
    assert window.admit("a", 5, START)
    assert window.admit("b", 1, START)


def test_window_is_bounded_and_forgets_what_was_seen_longest_ago():
    window = AttemptWindow(size=2)
    for agenda_id in ("a", "b"):
        window.admit(agenda_id, 1, START)
    window.admit("a", 2, START)
    window.admit("c", 1, START)
    assert len(window) == 2
    assert not window.admit("a", 2, START)
    assert window.admit("b", 1, START)


def test_forgotten_attempt_is_admitted_again_but_none_older():
    window = AttemptWindow()
    window.admit("a", 2, START)
    window.forget("a", 2)
    assert not window.admit("a", 1, START)
    assert window.admit("a", 2, START)


def test_forgetting_an_outdated_attempt_changes_nothing():
    window = AttemptWindow()
    window.admit("a", 1, START)
    window.admit("a", 2, START)
    window.forget("a", 1)
    assert not window.admit("a", 2, START)


def test_an_id_that_is_used_anew_is_of_another_agenda():
    """Else its attempts would be claimed by nobody, and it would fail without a run."""
    window = AttemptWindow()
    later = START + timedelta(microseconds=1)
    window.admit("a", 3, START)
    assert window.admit("a", 1, later)
    assert not window.admit("a", 1, later)
    assert not window.admit("a", 1, START)
    assert window.admit("a", 2, START), "a later attempt, whatever its acceptance"
    assert not window.admit("a", 2, later)
    window.forget("a", 2)
    assert window.admit("a", 2, later)


def test_window_of_no_size_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        AttemptWindow(0)
