"""Ids of agendas that come without one."""

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

from pop_stream.api.submissions.submissions import time_ordered_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_ids_are_in_the_order_of_their_time():
    made = [time_ordered_id(NOW + timedelta(milliseconds=step)) for step in range(100)]
    assert made == sorted(made)


def test_ids_of_one_instant_differ():
    assert len({time_ordered_id(NOW) for _ in range(1_000)}) == 1_000


def test_an_id_is_a_uuid_of_version_7():
    made = UUID(time_ordered_id(NOW))
    assert (made.version, made.variant) == (7, RFC_4122)
    assert made.int >> 80 == NOW.timestamp() * 1000
