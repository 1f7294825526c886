from datetime import UTC, datetime

from pop_stream.policy.http_pull import SummarizedAttempts

AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)


def test_of_an_id_that_is_used_anew_nothing_was_seen_yet():
    seen = SummarizedAttempts()
    seen.remember("a1", AT)
    assert seen.was("a1", AT)
    assert not seen.was("a1", LATER)
    assert not seen.was("a2", AT)


def test_what_was_seen_longest_ago_is_forgotten_first():
    seen = SummarizedAttempts(size=2)
    for agenda_id in ("a1", "a2", "a1", "a3"):
        seen.remember(agenda_id, AT)
    assert [seen.was(one, AT) for one in ("a1", "a2", "a3")] == [True, False, True]
