"""The rows of an insight: what is written, what is read back, and how large they may grow."""

import msgspec
import pytest
from backlogs import backlog, cancel, ids, placed, settled, several
from fakes import MemoryTable

from pop_stream.core.backlog.page import PAGE_SLOTS
from pop_stream.core.backlog.reruns import MOST_RERUN
from pop_stream.core.events import Origin, encode
from pop_stream.scheduler.emission import MOST_CHOSEN
from pop_stream.scheduler.shelf import RING, Shelf, insights_in
from pop_stream.scheduler.terms import term_of, used

MOST_ROW_BYTES = 950_000
"""A record holds a million; key, coordinates and the batch take their part."""


class SizedTable(MemoryTable):
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
    monkeypatch.setattr("pop_stream.scheduler.shelf.RING", 4)


def keep(shelf, one, agendas):
    shelf.put_page(one.place(agendas), [encode(agenda) for agenda in agendas])
    shelf.save(one)


def save_through_the_ring(shelf, one):
    for number in range(4):
        one.news(several("x", 1), [Origin(partition=9, offset=number)])
        shelf.save(one)


def reloaded(table, **insight):
    one, shelf = backlog(**insight), Shelf(table, 0, "media")
    shelf.load(insights_in(table, 0).get("media", {}), one)
    return one, shelf


def test_rows_are_named_by_partition_and_insight():
    table, one = MemoryTable(), backlog()
    keep(Shelf(table, 7, "media"), one, several("ann", 1))
    assert set(table.data) == {"7/media/page/0", "7/media/journal/1"}


def test_a_page_is_a_json_list():
    table, one = MemoryTable(), backlog()
    keep(Shelf(table, 0, "media"), one, several("ann", 3))
    page = msgspec.json.decode(table.data["0/media/page/0"])
    assert [agenda["agenda_id"] for agenda in page] == ["ann-0", "ann-1", "ann-2"]


def test_an_agenda_is_read_by_its_place():
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    agendas = [placed("a"), placed("bb", "ann", rank=3), placed("ccc", fairness_key="k")]
    keep(shelf, one, agendas)
    assert [shelf.agenda(0, slot) for slot in range(3)] == agendas
    _, again = reloaded(table)
    assert [again.agenda(0, slot) for slot in range(3)] == agendas


def test_a_row_that_the_table_lost_is_told():
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    keep(shelf, one, several("ann", 1))
    table.data.clear()
    with pytest.raises(LookupError, match="0/media/page/0 is missing"):
        shelf.agenda(0, 0)


def test_an_event_that_changed_nothing_writes_nothing():
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    shelf.save(one)
    assert table.data == {}


def test_an_event_writes_one_row_whatever_it_touched():
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    keep(shelf, one, several("ann", 100))
    before = table.writes
    one.choose(50)
    for number in range(20):
        one.settle(settled(f"ann-{number}", noop=1.0))
    shelf.save(one)
    assert table.writes == before + 1


def test_an_emptied_page_is_deleted_after_the_journal_says_so():
    order = []

    class Watched(MemoryTable):
        def put(self, key, value):
            order.append(key)
            super().put(key, value)

        def delete(self, key):
            order.append(f"-{key}")
            super().delete(key)

    table, one = Watched(), backlog()
    shelf = Shelf(table, 0, "media")
    keep(shelf, one, several("ann", 1))
    cancel(one, "ann-0")
    shelf.save(one)
    assert order[-2:] == ["0/media/journal/2", "-0/media/page/0"]
    assert reloaded(table)[0].ready == 0


def test_a_deletion_that_was_lost_is_made_up_for_at_the_next_load():
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    keep(shelf, one, several("ann", 1))
    page = table.data["0/media/page/0"]
    cancel(one, "ann-0")
    shelf.save(one)
    table.data["0/media/page/0"] = page
    again, _ = reloaded(table)
    assert again.ready == 0
    assert "0/media/page/0" not in table.data


def test_the_journal_is_a_ring_and_snapshots_stand_for_what_it_forgets():
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    for number in range(3 * RING + 10):
        keep(shelf, one, several(f"c{number % 7}", 1, first=number))
        if number % 2:
            (chosen,) = one.choose(1)
            one.settle(settled(chosen.agenda_id, noop=0.1 + number % 3))
            shelf.save(one)
    journal = [key for key in table.data if "/journal/" in key]
    assert len(journal) == RING
    assert len([key for key in table.data if "/mark/" in key]) <= 2
    again, _ = reloaded(table)
    assert again.ready == one.ready
    assert again.next_page == one.next_page
    assert ids(again.choose(300)) == ids(one.choose(300))


def test_numbering_goes_on_after_a_reload_across_snapshots():
    table = MemoryTable()
    placed_pages = set()
    for round_number in range(5):
        one, shelf = reloaded(table)
        for number in range(RING // 2 + 7):
            before = set(table.data)
            keep(shelf, one, several("ann", 1, first=1_000 * round_number + number))
            new = {key for key in table.data if "/page/" in key} - before
            assert not new & placed_pages
            placed_pages |= new
    assert reloaded(table)[0].ready == 5 * (RING // 2 + 7)


@pytest.mark.parametrize(
    ("missing", "known"),
    [((), (40, False)), ((2,), (10, True)), ((1, 3), (-1, True)), ((4,), (30, False))],
)
def test_up_to_where_records_were_handled_is_told_by_rows_before_a_missing_one(missing, known):
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    for number in range(1, 5):
        shelf.put_page(one.place([placed(f"a{number}")]), [encode(placed(f"a{number}"))])
        shelf.save(one, 10 * number)
    for number in missing:
        table.delete(f"0/media/journal/{number}")
    again, found = reloaded(table)
    assert (found.offset, found.lacks_rows) == known
    shelf = Shelf(table, 0, "media", 7)
    shelf.load(insights_in(table, 0)["media"], again := backlog())
    keep(shelf, again, several("ann", 1))
    assert not reloaded(table)[1].lacks_rows, "from then on they are whole"


def test_a_snapshot_half_written_is_not_in_force():
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    for number in range(RING - 1):
        keep(shelf, one, several("ann", 1, first=number))
    before = dict(table.data)
    keep(shelf, one, several("ann", 1, first=RING))
    new = {key: row for key, row in table.data.items() if before.get(key) != row}
    assert "0/media/head" in new
    del table.data["0/media/head"]
    assert reloaded(table)[0].ready == RING


def test_the_side_in_force_is_never_written_to():
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    sides = []
    for number in range(4 * RING):
        keep(shelf, one, several("ann", 1, first=number))
        head = table.data.get("0/media/head")
        side = msgspec.json.decode(head)["side"] if head else None
        if not sides or sides[-1] != side:
            sides.append(side)
    assert sides == [None, 1, 0, 1, 0]


@pytest.mark.usefixtures("short_ring")
def test_a_backlog_of_thousands_of_customers_is_cut_in_parts():
    table, one = SizedTable(), backlog()
    shelf = Shelf(table, 0, "media")
    for page in range(10):
        numbers = range(page * 500, page * 500 + 500)
        keep(shelf, one, [placed(f"a{n}", f"{'c' * 120}{n:05d}") for n in numbers])
    one.choose(2_500)
    save_through_the_ring(shelf, one)
    parts = [key for key in table.data if "/mark/" in key]
    assert len(parts) >= 5
    assert table.largest < MOST_ROW_BYTES
    again, _ = reloaded(table)
    assert again.in_flight == one.in_flight


@pytest.mark.usefixtures("short_ring")
def test_no_row_outgrows_a_record_with_the_longest_ids_keys_and_rounds():
    table, one = SizedTable(), backlog()
    shelf = Shelf(table, 0, "media")
    name = "i" * 120
    count = 0
    while one.ready < MOST_CHOSEN:
        agendas = [
            placed(f"{name}{n:06d}", f"{name}{n:06d}", fairness_key=f"{name}{n:06d}")
            for n in range(count, count + 400)
        ]
        count += 400
        keep(shelf, one, agendas)
    one.choose(MOST_CHOSEN)
    shelf.save(one)
    for start in range(0, MOST_RERUN, 400):
        again = [placed(f"{name}again{start + n:06d}", attempt=2) for n in range(400)]
        keep(shelf, one, again)
        for agenda in again:
            cancel(one, agenda.agenda_id)
        shelf.save(one)
    save_through_the_ring(shelf, one)
    assert "0/media/head" in table.data
    assert table.largest < MOST_ROW_BYTES


@pytest.mark.usefixtures("short_ring")
def test_one_customer_with_thousands_of_keys_fits_rows_too():
    table, one = SizedTable(), backlog()
    shelf = Shelf(table, 0, "media")
    for page in range(5):
        numbers = range(page * PAGE_SLOTS, (page + 1) * PAGE_SLOTS)
        keep(shelf, one, [placed(f"a{n}", fairness_key=f"{'k' * 120}{n}") for n in numbers])
    one.choose(500)
    save_through_the_ring(shelf, one)
    assert table.largest < MOST_ROW_BYTES
    again, _ = reloaded(table)
    assert ids(again.choose(2_000)) == ids(one.choose(2_000))


def test_rows_are_told_apart_by_insight():
    table = MemoryTable()
    for name in ("media", "video"):
        one = backlog()
        keep(Shelf(table, 0, name), one, several(name, 2))
    keep(Shelf(table, 1, "media"), backlog(), several("elsewhere", 1))
    found = insights_in(table, 0)
    assert {name: len(rows) for name, rows in found.items()} == {"media": 2, "video": 2}
    assert insights_in(table, 2) == {}


GARBAGE = [
    ("page/0", b'[{"agenda_id": 5}]'),
    ("page/x", b"[]"),
    ("page/0", b"\xff"),
    ("journal/1", b"{"),
    ("head", b"[]"),
]


@pytest.mark.parametrize(("name", "value"), GARBAGE)
def test_a_row_that_cannot_be_read_is_told_and_stops_nothing(name, value):
    table, one = MemoryTable(), backlog()
    shelf = Shelf(table, 0, "media")
    keep(shelf, one, several("a", 2))
    keep(shelf, one, several("b", 2))
    table.data[f"0/media/{name}"] = value
    again, shelf = reloaded(table)
    assert [*shelf.unreadable] == [f"0/media/{name}"]
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


def taken_over(table, sent, term):
    one = backlog()
    shelf = Shelf(sent, 0, "media", term)
    shelf.load(insights_in(table, 0).get("media", {}), one)
    return one, shelf


def work(one, shelf, name):
    """Enough for pages, rows, an emptied page and, where the ring is short, a snapshot."""
    for number in range(6):
        keep(shelf, one, several(f"{name}{number}", 2))
        for chosen in one.choose(1):
            one.settle(settled(chosen.agenda_id, noop=0.5))
        shelf.save(one)


@pytest.mark.usefixtures("short_ring")
@pytest.mark.parametrize("arrived", range(0, 40, 3))
@pytest.mark.parametrize("at", [0, 1, 5, 12, 99])
def test_what_an_owner_before_had_on_its_way_changes_nothing_when_it_arrives(arrived, at):
    table = MemoryTable()
    first = Sent(MemoryTable())
    work(*taken_over(MemoryTable(), first, 3), "frozen")
    for key, value in first.rows[:arrived]:
        table.put(key, value) if value is not None else table.delete(key)
    beside, second = MemoryTable(), Sent(MemoryTable())
    beside.data, second._table.data = dict(table.data), dict(table.data)
    one, shelf = taken_over(table, second, 4)
    work(one, shelf, "next")
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
    table = MemoryTable()
    one, shelf = taken_over(table, table, 3)
    keep(shelf, one, several("ann", 1))
    keep(shelf, one, several("bob", 1))
    one.choose(2)
    shelf.save(one)
    dying = Sent(MemoryTable())
    dying._table.data = dict(table.data)
    one, shelf = taken_over(table, dying, 4)
    assert one.settle(settled("ann-0", noop=0.5))
    shelf.save(one)
    for key, value in dying.rows[:kept]:
        table.put(key, value) if value is not None else table.delete(key)
    again, _ = taken_over(table, Sent(table), 5)
    is_kept = "0/media/term/4/head" in table.data
    assert again.settle(settled("ann-0", noop=0.5)) is not is_kept
    assert again.in_flight == 1


def test_rows_without_pages_of_theirs_are_of_the_last_term():
    spans = ((0, 3), (5, 4), (7, 6), (9, 8))
    assert used(spans, [1, 8]) == ((0, 3), (5, 8), (7, 6), (9, 8))
    assert used(spans, [8]) == ((0, 8), (7, 6), (9, 8))
    assert used(spans, []) == ((0, 8),)
    assert term_of(used(spans, [1]), 5) == 8


@pytest.mark.usefixtures("short_ring")
def test_what_earlier_terms_have_left_is_deleted():
    table = MemoryTable()
    for term in range(1, 9):
        one, shelf = taken_over(table, Sent(table), term)
        work(one, shelf, f"t{term}-")
        for chosen in one.choose(100):
            one.settle(settled(chosen.agenda_id, noop=0.1))
        shelf.save(one)
    terms = {key.split("/")[3] for key in table.data}
    assert terms <= {"7", "8"}


def test_rows_without_a_term_are_read_and_followed():
    table = MemoryTable()
    keep(Shelf(table, 0, "media"), backlog(), several("old", 2))
    one, shelf = taken_over(table, Sent(table), 7)
    keep(shelf, one, several("new", 1))
    again, shelf = taken_over(table, Sent(table), 8)
    assert again.ready == 3
    assert [shelf.agenda(0, 1).agenda_id, shelf.agenda(1, 0).agenda_id] == ["old-1", "new-0"]


def test_a_term_that_is_not_later_than_what_is_found_is_made_so():
    table = MemoryTable()
    keep(Shelf(table, 0, "media", 9), backlog(), several("a", 1))
    one, shelf = taken_over(table, Sent(table), 2)  # the group was made anew
    keep(shelf, one, several("b", 1))
    assert "0/media/term/10/head" in table.data
    assert taken_over(table, Sent(table), 3)[0].ready == 2


def test_where_the_head_of_a_term_cannot_be_read_its_pages_are_found():
    table = MemoryTable()
    keep(Shelf(table, 0, "media", 9), backlog(), several("a", 2))
    table.data["0/media/term/9/head"] = b"{"
    one, shelf = taken_over(table, Sent(table), 10)
    assert [*shelf.unreadable] == ["0/media/term/9/head"]
    assert one.ready == 2


def test_pages_are_read_back_oldest_first_and_one_at_a_time():
    table = MemoryTable()
    for number in (10, 9, 2):
        bodies = [encode(agenda) for agenda in several(f"of-{number}", 1)]
        Shelf(table, 0, "media").put_page(number, bodies)
    table.put("0/media/page/11", b"cannot be read")
    taken: list[tuple[int, bool]] = []

    class Watching:
        """Takes the pages one by one, and looks whether the last one was read by then."""

        next_page = 12

        def restore(self, pages, deltas, now):
            taken.extend((number, bool(shelf.unreadable)) for number, _ in pages)

        def take_emptied(self):
            return []

    shelf = Shelf(table, 0, "media")
    shelf.load(insights_in(table, 0)["media"], Watching())
    assert taken == [(2, False), (9, False), (10, False)]
    assert [*shelf.unreadable] == ["0/media/page/11"]
