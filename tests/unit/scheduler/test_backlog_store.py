"""The rows of an insight: what is written, what is read back, and how large they may grow."""

import msgspec
import pytest
from backlogs import backlog, cancel, ids, placed, settled, several
from fakes import MemoryReadyTable

from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import Origin
from pop_stream.policy.backlog.agenda_index import PAGE_SLOTS
from pop_stream.policy.backlog.series import MAX_RERUNS
from pop_stream.scheduler.round_writer import MAX_ROUND_SIZE
from pop_stream.scheduler.state.backlog_store import JOURNAL_ROWS, BacklogStore, rows_by_insight
from pop_stream.scheduler.state.row_format import compact_epochs, epoch_of

MAX_ROW_BYTES = 950_000
"""A record holds a million; key, coordinates and the batch take their part."""


class SizedTable(MemoryReadyTable):
    """Remembers the largest row ever written."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def put(self, key, value):
        super().put(key, value)
        self.largest = max(self.largest, len(key) + len(value))


@pytest.fixture
def short_ring(monkeypatch):
    """A snapshot every few events."""
    monkeypatch.setattr("pop_stream.scheduler.state.backlog_store.JOURNAL_ROWS", 4)


def keep(store, one, agendas):
    store.write_page(one.place(agendas), [encode(agenda) for agenda in agendas])
    store.save(one)


def save_through_the_ring(store, one):
    for number in range(4):
        one.filter_new(several("x", 1), [Origin(partition=9, offset=number)])
        store.save(one)


def reloaded(table, **insight):
    one, store = backlog(**insight), BacklogStore(table, 0, "media")
    store.load(rows_by_insight(table, 0).get("media", {}), one)
    return one, store


def test_rows_are_named_by_partition_and_insight():
    table, one = MemoryReadyTable(), backlog()
    keep(BacklogStore(table, 7, "media"), one, several("ann", 1))
    assert set(table.data) == {"7/media/page/0", "7/media/journal/1"}


def test_a_page_is_a_json_list():
    table, one = MemoryReadyTable(), backlog()
    keep(BacklogStore(table, 0, "media"), one, several("ann", 3))
    page = msgspec.json.decode(table.data["0/media/page/0"])
    assert [agenda["agenda_id"] for agenda in page] == ["ann-0", "ann-1", "ann-2"]


def test_an_agenda_is_read_by_its_place():
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    agendas = [placed("a"), placed("bb", "ann", rank=3), placed("ccc", fairness_key="k")]
    keep(store, one, agendas)
    assert [store.agenda(0, slot) for slot in range(3)] == agendas
    _, again = reloaded(table)
    assert [again.agenda(0, slot) for slot in range(3)] == agendas


def test_a_row_that_the_table_lost_is_reported():
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    keep(store, one, several("ann", 1))
    table.data.clear()
    with pytest.raises(LookupError, match="0/media/page/0 is missing"):
        store.agenda(0, 0)


def test_an_event_that_changed_nothing_writes_nothing():
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    store.save(one)
    assert table.data == {}


def test_an_event_writes_one_row_whatever_it_touched():
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    keep(store, one, several("ann", 100))
    before = table.writes
    one.choose(50)
    for number in range(20):
        one.settle(settled(f"ann-{number}", noop=1.0))
    store.save(one)
    assert table.writes == before + 1


def test_an_emptied_page_is_deleted_after_the_journal_says_so():
    order = []

    class Watched(MemoryReadyTable):
        def put(self, key, value):
            order.append(key)
            super().put(key, value)

        def delete(self, key):
            order.append(f"-{key}")
            super().delete(key)

    table, one = Watched(), backlog()
    store = BacklogStore(table, 0, "media")
    keep(store, one, several("ann", 1))
    cancel(one, "ann-0")
    store.save(one)
    assert order[-2:] == ["0/media/journal/2", "-0/media/page/0"]
    assert reloaded(table)[0].ready == 0


def test_a_deletion_that_was_lost_is_made_up_for_at_the_next_load():
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    keep(store, one, several("ann", 1))
    page = table.data["0/media/page/0"]
    cancel(one, "ann-0")
    store.save(one)
    table.data["0/media/page/0"] = page
    again, _ = reloaded(table)
    assert again.ready == 0
    assert "0/media/page/0" not in table.data


def test_the_journal_is_a_ring_and_snapshots_stand_for_what_it_forgets():
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    for number in range(3 * JOURNAL_ROWS + 10):
        keep(store, one, several(f"c{number % 7}", 1, first=number))
        if number % 2:
            (chosen,) = one.choose(1)
            one.settle(settled(chosen.agenda_id, noop=0.1 + number % 3))
            store.save(one)
    journal = [key for key in table.data if "/journal/" in key]
    assert len(journal) == JOURNAL_ROWS
    assert len([key for key in table.data if "/mark/" in key]) <= 2
    again, _ = reloaded(table)
    assert again.ready == one.ready
    assert again.next_page == one.next_page
    assert ids(again.choose(300)) == ids(one.choose(300))


def test_numbering_goes_on_after_a_reload_across_snapshots():
    table = MemoryReadyTable()
    placed_pages = set()
    for round_number in range(5):
        one, store = reloaded(table)
        for number in range(JOURNAL_ROWS // 2 + 7):
            before = set(table.data)
            keep(store, one, several("ann", 1, first=1_000 * round_number + number))
            new = {key for key in table.data if "/page/" in key} - before
            assert not new & placed_pages
            placed_pages |= new
    assert reloaded(table)[0].ready == 5 * (JOURNAL_ROWS // 2 + 7)


@pytest.mark.parametrize(
    ("missing", "known"),
    [((), (40, False)), ((2,), (10, True)), ((1, 3), (-1, True)), ((4,), (30, False))],
)
def test_up_to_where_records_were_handled_is_known_by_rows_before_a_missing_one(missing, known):
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    for number in range(1, 5):
        store.write_page(one.place([placed(f"a{number}")]), [encode(placed(f"a{number}"))])
        store.save(one, 10 * number)
    for number in missing:
        table.delete(f"0/media/journal/{number}")
    again, found = reloaded(table)
    assert (found.offset, found.is_incomplete) == known
    store = BacklogStore(table, 0, "media", 7)
    store.load(rows_by_insight(table, 0)["media"], again := backlog())
    keep(store, again, several("ann", 1))
    assert not reloaded(table)[1].is_incomplete, "from then on they are whole"


def test_a_snapshot_half_written_is_not_in_force():
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    for number in range(JOURNAL_ROWS - 1):
        keep(store, one, several("ann", 1, first=number))
    before = dict(table.data)
    keep(store, one, several("ann", 1, first=JOURNAL_ROWS))
    new = {key: row for key, row in table.data.items() if before.get(key) != row}
    assert "0/media/head" in new
    del table.data["0/media/head"]
    assert reloaded(table)[0].ready == JOURNAL_ROWS


def test_the_side_in_force_is_never_written_to():
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    sides = []
    for number in range(4 * JOURNAL_ROWS):
        keep(store, one, several("ann", 1, first=number))
        head = table.data.get("0/media/head")
        side = msgspec.json.decode(head)["side"] if head else None
        if not sides or sides[-1] != side:
            sides.append(side)
    assert sides == [None, 1, 0, 1, 0]


@pytest.mark.usefixtures("short_ring")
def test_a_backlog_of_thousands_of_customers_is_cut_in_parts():
    table, one = SizedTable(), backlog()
    store = BacklogStore(table, 0, "media")
    for page in range(10):
        numbers = range(page * 500, page * 500 + 500)
        keep(store, one, [placed(f"a{n}", f"{'c' * 120}{n:05d}") for n in numbers])
    one.choose(2_500)
    save_through_the_ring(store, one)
    parts = [key for key in table.data if "/mark/" in key]
    assert len(parts) >= 5
    assert table.largest < MAX_ROW_BYTES
    again, _ = reloaded(table)
    assert again.in_flight == one.in_flight


@pytest.mark.usefixtures("short_ring")
def test_no_row_outgrows_a_record_with_the_longest_ids_keys_and_rounds():
    table, one = SizedTable(), backlog()
    store = BacklogStore(table, 0, "media")
    name = "i" * 120
    count = 0
    while one.ready < MAX_ROUND_SIZE:
        agendas = [
            placed(f"{name}{n:06d}", f"{name}{n:06d}", fairness_key=f"{name}{n:06d}")
            for n in range(count, count + 400)
        ]
        count += 400
        keep(store, one, agendas)
    one.choose(MAX_ROUND_SIZE)
    store.save(one)
    for start in range(0, MAX_RERUNS, 400):
        again = [placed(f"{name}again{start + n:06d}", attempt=2) for n in range(400)]
        keep(store, one, again)
        for agenda in again:
            cancel(one, agenda.agenda_id)
        store.save(one)
    save_through_the_ring(store, one)
    assert "0/media/head" in table.data
    assert table.largest < MAX_ROW_BYTES


@pytest.mark.usefixtures("short_ring")
def test_one_customer_with_thousands_of_keys_fits_rows_too():
    table, one = SizedTable(), backlog()
    store = BacklogStore(table, 0, "media")
    for page in range(5):
        numbers = range(page * PAGE_SLOTS, (page + 1) * PAGE_SLOTS)
        keep(store, one, [placed(f"a{n}", fairness_key=f"{'k' * 120}{n}") for n in numbers])
    one.choose(500)
    save_through_the_ring(store, one)
    assert table.largest < MAX_ROW_BYTES
    again, _ = reloaded(table)
    assert ids(again.choose(2_000)) == ids(one.choose(2_000))


def test_rows_are_distinguished_by_insight():
    table = MemoryReadyTable()
    for name in ("media", "video"):
        one = backlog()
        keep(BacklogStore(table, 0, name), one, several(name, 2))
    keep(BacklogStore(table, 1, "media"), backlog(), several("elsewhere", 1))
    found = rows_by_insight(table, 0)
    assert {name: len(rows) for name, rows in found.items()} == {"media": 2, "video": 2}
    assert rows_by_insight(table, 2) == {}


GARBAGE = [
    ("page/0", b'[{"agenda_id": 5}]'),
    ("page/x", b"[]"),
    ("page/0", b"\xff"),
    ("journal/1", b"{"),
    ("head", b"[]"),
]


@pytest.mark.parametrize(("name", "value"), GARBAGE)
def test_a_row_that_cannot_be_read_is_reported_and_stops_nothing(name, value):
    table, one = MemoryReadyTable(), backlog()
    store = BacklogStore(table, 0, "media")
    keep(store, one, several("a", 2))
    keep(store, one, several("b", 2))
    table.data[f"0/media/{name}"] = value
    again, store = reloaded(table)
    assert [*store.unreadable] == [f"0/media/{name}"]
    if name == "page/0":
        assert again.ready == 2  # what the page held is missed, and found by the audit
    else:
        assert again.ready == 4


class Sent:
    """What an owner writes, as it leaves its process."""

    def __init__(self, table):
        self.rows = []
        self._table = table

    def put(self, key, value):
        self._table.put(key, value)
        self.rows.append((key, value))

    def delete(self, key):
        self._table.delete(key)
        self.rows.append((key, None))

    def get(self, key):
        return self._table.get(key)


def taken_over(table, sent, epoch):
    one = backlog()
    store = BacklogStore(sent, 0, "media", epoch)
    store.load(rows_by_insight(table, 0).get("media", {}), one)
    return one, store


def work(one, store, name):
    """Enough for pages, rows, an emptied page and, where the ring is short, a snapshot."""
    for number in range(6):
        keep(store, one, several(f"{name}{number}", 2))
        for chosen in one.choose(1):
            one.settle(settled(chosen.agenda_id, noop=0.5))
        store.save(one)


@pytest.mark.usefixtures("short_ring")
@pytest.mark.parametrize("arrived", range(0, 40, 3))
@pytest.mark.parametrize("at", [0, 1, 5, 12, 99])
def test_what_an_owner_before_had_on_its_way_changes_nothing_when_it_arrives(arrived, at):
    table = MemoryReadyTable()
    first = Sent(MemoryReadyTable())
    work(*taken_over(MemoryReadyTable(), first, 3), "frozen")
    for key, value in first.rows[:arrived]:
        table.put(key, value) if value is not None else table.delete(key)
    beside, second = MemoryReadyTable(), Sent(MemoryReadyTable())
    beside.data, second._table.data = dict(table.data), dict(table.data)
    one, store = taken_over(table, second, 4)
    work(one, store, "next")
    # Not deletions: whoever reads the same events again empties the same pages.
    late = [row for row in first.rows[arrived:] if row[1] is not None]
    for key, value in [*second.rows[:at], *late, *second.rows[at:]]:
        table.put(key, value) if value is not None else table.delete(key)
    third = taken_over(table, Sent(table), 5)
    assert third[0].snapshot() == taken_over(second._table, second, 5)[0].snapshot()
    work(*third, "last")
    fourth, _ = taken_over(table, Sent(table), 6)
    assert fourth.snapshot() == third[0].snapshot()


@pytest.mark.parametrize("kept", range(1, 12))
def test_a_term_that_begins_with_an_end_is_whole_wherever_its_writes_are_cut(kept):
    table = MemoryReadyTable()
    one, store = taken_over(table, table, 3)
    keep(store, one, several("ann", 1))
    keep(store, one, several("bob", 1))
    one.choose(2)
    store.save(one)
    dying = Sent(MemoryReadyTable())
    dying._table.data = dict(table.data)
    one, store = taken_over(table, dying, 4)
    assert one.settle(settled("ann-0", noop=0.5))
    store.save(one)
    for key, value in dying.rows[:kept]:
        table.put(key, value) if value is not None else table.delete(key)
    again, _ = taken_over(table, Sent(table), 5)
    is_kept = "0/media/term/4/head" in table.data
    assert again.settle(settled("ann-0", noop=0.5)) is not is_kept
    assert again.in_flight == 1


def test_rows_without_pages_of_theirs_are_of_the_last_term():
    spans = ((0, 3), (5, 4), (7, 6), (9, 8))
    assert compact_epochs(spans, [1, 8]) == ((0, 3), (5, 8), (7, 6), (9, 8))
    assert compact_epochs(spans, [8]) == ((0, 8), (7, 6), (9, 8))
    assert compact_epochs(spans, []) == ((0, 8),)
    assert epoch_of(compact_epochs(spans, [1]), 5) == 8


@pytest.mark.usefixtures("short_ring")
def test_what_earlier_terms_have_left_is_deleted():
    table = MemoryReadyTable()
    for epoch in range(1, 9):
        one, store = taken_over(table, Sent(table), epoch)
        work(one, store, f"t{epoch}-")
        for chosen in one.choose(100):
            one.settle(settled(chosen.agenda_id, noop=0.1))
        store.save(one)
    terms = {key.split("/")[3] for key in table.data}
    assert terms <= {"7", "8"}


def test_rows_without_a_term_are_read_and_followed():
    table = MemoryReadyTable()
    keep(BacklogStore(table, 0, "media"), backlog(), several("old", 2))
    one, store = taken_over(table, Sent(table), 7)
    keep(store, one, several("new", 1))
    again, store = taken_over(table, Sent(table), 8)
    assert again.ready == 3
    assert [store.agenda(0, 1).agenda_id, store.agenda(1, 0).agenda_id] == ["old-1", "new-0"]


def test_a_term_that_is_not_later_than_what_is_found_is_made_so():
    table = MemoryReadyTable()
    keep(BacklogStore(table, 0, "media", 9), backlog(), several("a", 1))
    one, store = taken_over(table, Sent(table), 2)  # the group was made anew
    keep(store, one, several("b", 1))
    assert "0/media/term/10/head" in table.data
    assert taken_over(table, Sent(table), 3)[0].ready == 2


def test_where_the_head_of_a_term_cannot_be_read_its_pages_are_found():
    table = MemoryReadyTable()
    keep(BacklogStore(table, 0, "media", 9), backlog(), several("a", 2))
    table.data["0/media/term/9/head"] = b"{"
    one, store = taken_over(table, Sent(table), 10)
    assert [*store.unreadable] == ["0/media/term/9/head"]
    assert one.ready == 2


def test_pages_are_read_back_oldest_first_and_one_at_a_time():
    table = MemoryReadyTable()
    for number in (10, 9, 2):
        bodies = [encode(agenda) for agenda in several(f"of-{number}", 1)]
        BacklogStore(table, 0, "media").write_page(number, bodies)
    table.put("0/media/page/11", b"cannot be read")
    taken: list[tuple[int, bool]] = []

    class Watching:
        """Takes the pages one by one, and looks whether the last one was read by then."""

        next_page = 12

        def restore(self, pages, deltas, now):
            taken.extend((number, bool(store.unreadable)) for number, _ in pages)

        def drain_emptied(self):
            return []

    store = BacklogStore(table, 0, "media")
    store.load(rows_by_insight(table, 0)["media"], Watching())
    assert taken == [(2, False), (9, False), (10, False)]
    assert [*store.unreadable] == ["0/media/page/11"]
