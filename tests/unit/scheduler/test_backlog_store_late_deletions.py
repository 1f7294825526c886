"""Deletions of a frozen owner that arrive when others have long taken over.

An owner deletes a page when it has published the end of each of its agendas. So all that such
a deletion removes are agendas that only the present owner still holds: it has not been given
their ends yet, or it has restarted their leases.
"""

import pytest
from backlogs import backlog, settled, several
from fakes import MemoryReadyTable

from pop_stream.model.events.codec import encode
from pop_stream.scheduler.state.backlog_store import BacklogStore, rows_by_insight


class Sent(MemoryReadyTable):
    """What an owner writes, as it leaves its process."""

    def __init__(self, data):
        super().__init__()
        self.data = dict(data)
        self.sent = []

    def put(self, key, value):
        super().put(key, value)
        self.sent.append((key, value))

    def delete(self, key):
        super().delete(key)
        self.sent.append((key, None))


def taken_over(table, epoch):
    one = backlog()
    store = BacklogStore(table, 0, "media", epoch)
    store.load(rows_by_insight(table, 0).get("media", {}), one)
    return one, store


def keep(store, one, agendas):
    number = one.place(agendas)
    store.write_page(number, [encode(agenda) for agenda in agendas])
    store.save(one)


def arrive(table, rows):
    for key, value in rows:
        if value is None:
            table.data.pop(key, None)
        else:
            table.data[key] = value


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("later", [0, 1])
def test_a_page_deleted_late_takes_along_only_what_had_ended(has_begun, later):
    first = Sent({})
    one, store = taken_over(first, 3)
    keep(store, one, several("a", 2))
    keep(store, one, several("b", 2))
    out = one.choose(4)
    store.save(one)
    topic = MemoryReadyTable()
    topic.data = dict(first.data)
    first.sent.clear()
    for chosen in out:  # of the first page both end, which its owner is frozen in writing
        if chosen.agenda_id.startswith("a"):
            assert one.settle(settled(chosen.agenda_id))
    store.save(one)
    assert [key for key, value in first.sent if value is None and "/page/" in key]

    second = Sent(topic.data)
    another, its = taken_over(second, 4)
    assert len(another.index.refs()) == 4
    if has_begun:
        keep(its, another, several("c", 2))
    arrive(topic, second.sent)
    arrive(topic, first.sent)

    third, last = taken_over(topic, 5)
    refs = {*third.index.refs()}
    assert {one for one in refs if not one.startswith("a")} == (
        {"b-0", "b-1", "c-0", "c-1"} if has_begun else {"b-0", "b-1"}
    )
    assert not {one for one in refs if one.startswith("a")}
    # Their ends are read again, and all others go on.
    assert not third.settle(settled("a-0"))
    assert third.settle(settled("b-0"))
    keep(last, third, several("d", 2))
    for number in range(later):
        fourth, _ = taken_over(topic, 6 + number)
        assert fourth.snapshot() == third.snapshot()
