"""What is remembered of agendas that workers hold over HTTP."""

from datetime import timedelta

import msgspec
import puller_fakes
from backlogs import START

from pop_stream.policy import http_pull as handed_module
from pop_stream.policy.http_pull import DeliveredAttempts


def emitted(agenda_id, attempt=1, body=b"{}", accepted_at=START):
    return puller_fakes.emitted(
        agenda_id=agenda_id,
        attempt=attempt,
        agenda=msgspec.Raw(body),
        accepted_at=accepted_at,
        emitted_at=START,
    )


def test_the_newest_attempt_counts_in_whatever_order_they_are_told():
    handed = DeliveredAttempts()
    for attempt in (2, 1, 3, 2):
        handed.remember(emitted("a", attempt))
    assert handed.of("a").attempt == 3
    assert handed.of("b") is None


def test_attempts_of_an_id_that_is_used_anew_count_from_one():
    """Else its first ones would be handed to nobody, as outdated."""
    handed = DeliveredAttempts()
    handed.remember(emitted("a", 3))
    handed.remember(emitted("a", 1, accepted_at=START + timedelta(hours=1)))
    assert handed.of("a").attempt == 1


def test_the_oldest_are_forgotten_and_what_is_told_again_is_new(monkeypatch):
    monkeypatch.setattr(handed_module, "MAX_DELIVERED", 2)
    handed = DeliveredAttempts()
    for one in ("a", "b", "a", "c"):
        handed.remember(emitted(one))
    assert [one for one in "abc" if handed.of(one)] == ["a", "c"]


def test_so_many_bytes_are_remembered_and_no_more(monkeypatch):
    monkeypatch.setattr(handed_module, "MAX_DELIVERED_BYTES", 10)
    handed = DeliveredAttempts()
    handed.remember(emitted("a", body=b"[0,1,2]"))
    handed.remember(emitted("a", 2, body=b"[0]"))
    handed.remember(emitted("b", body=b"[0,1,2]"))
    assert (handed.of("a").attempt, bool(handed.of("b"))) == (2, True), "exactly ten"
    handed.remember(emitted("c", body=b"0"))
    assert [one for one in "abc" if handed.of(one)] == ["b", "c"]
