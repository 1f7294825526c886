"""Rankers: what rank an agenda is given, and whom that orders."""

from datetime import UTC, datetime, timedelta

import pytest
from backlogs import backlog, ids, placed
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.events.base import MAX_RANK
from pop_stream.model.identity import ANYONE
from pop_stream.model.insight_options import Ranker
from pop_stream.policy.ingress.admission import Admission
from pop_stream.policy.ingress.rankers import rank_of

AT = datetime(2026, 1, 31, tzinfo=UTC)
DAY = timedelta(days=1)


def agenda(**fields):
    made = {"customer_id": "acme", "operations": [{"name": "a", "type": "scan"}], **fields}
    return parse_agenda(made)


def rank(ranker, own=None, at=AT, **fields):
    return rank_of(agenda(**fields), Ranker(**ranker), at, own or {})


def test_a_fixed_rank_is_for_all():
    assert rank({"by": "fixed", "rank": 7}) == 7


def test_the_soonest_deadline_is_first_and_none_is_last():
    by = {"by": "deadline"}
    soon, late = (rank(by, expires_at=(AT + n * DAY).isoformat()) for n in (1, 2))
    assert soon < late < rank(by) == MAX_RANK
    assert soon == rank(by, at=AT + DAY / 2, expires_at=(AT + DAY).isoformat())


def test_the_oldest_source_is_first_whenever_it_comes():
    by = {"by": "age_of", "field": "/params/seen_at"}
    old = rank(by, params={"seen_at": "2026-01-01T00:00:00Z"})
    assert old == rank(by, params={"seen_at": datetime(2026, 1, 1, tzinfo=UTC).timestamp()})
    assert old < rank(by, params={"seen_at": "2026-01-02T00:00:00Z"}) < rank(by)
    assert rank(by) == rank(by, params={"seen_at": "soon"}) == int(AT.timestamp())


@pytest.mark.parametrize(
    ("days_ago", "expected"),
    [(0, 1000), (1, 1000), (2, 858), (4.5, 502), (8, 3), (30, 3), (-5, 1000)],
)
def test_staleness_is_on_the_scale_from_3_to_1000(days_ago, expected):
    by = {"by": "staleness", "field": "/params/ran_at", "grace_s": DAY.total_seconds()}
    assert rank(by, params={"ran_at": (AT - days_ago * DAY).isoformat()}) == expected


def test_what_is_pushed_comes_before_what_never_ran_and_that_before_what_did():
    by = {"by": "staleness", "field": "/params/ran_at"}
    assert rank(by, priority=1, params={"ran_at": AT.isoformat()}) == 1
    assert rank(by) == 2
    assert rank(by, params={"ran_at": "2000-01-01T00:00:00Z"}) == 3


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_what_ran_longer_ago_never_comes_later(one, other):
    by = {"by": "staleness", "field": "/params/ran_at", "horizon_s": 1e8}
    ranks = [rank(by, params={"ran_at": AT.timestamp() - ago}) for ago in sorted((one, other))]
    assert 1000 >= ranks[0] >= ranks[1] >= 3


@pytest.mark.parametrize(("found", "expected"), [(7, 7), (-5, 0), (2**40, MAX_RANK)])
def test_an_operators_own_is_kept_within_bounds(found, expected):
    own = {"mine": lambda agenda, at: found}
    assert rank({"by": "entry_point", "name": "mine"}, own) == expected
    assert rank({"by": "entry_point", "name": "not installed"}, own) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"by": "fixed"},
        {"by": "deadline", "rank": 1},
        {"by": "age_of"},
        {"by": "staleness", "field": "x"},
        {"by": "entry_point", "field": "/x"},
        {"by": "luck"},
        {"by": "staleness", "field": "/x", "horizon_s": 0},
    ],
)
def test_an_unsound_ranker_is_refused(wrong):
    with pytest.raises(ValidationError):
        Ranker(**wrong)


def admitted(document, ranker=None, **how):
    insight = Insight(id="scan", mappers=Mappers(operation_types=("scan",)), ranker=ranker)
    by = Admission(Definitions(insights={"scan": insight}), max_agenda_bytes=10_000)
    return by.admit_agenda(document, ANYONE, new_id=lambda: "n", **how).agenda.rank


def test_a_rank_is_computed_once_and_only_where_none_is_named():
    fixed = Ranker(by="fixed", rank=9)
    assert admitted(agenda(), fixed, at=AT) == 9
    assert admitted(agenda(rank=4), fixed, at=AT) == 4
    assert admitted(agenda(), fixed, at=AT, standing="admitted") == 0  # the API did
    assert admitted(agenda(), None, at=AT) == 0


def test_ranks_order_a_customers_own_agendas_only():
    one = backlog()
    one.place([placed("a-late", "ann", rank=2**32 - 1), placed("a-soon", "ann", rank=2**31)])
    one.place([placed("b", "bob", rank=2**32 - 2)])
    assert ids(one.choose(3)) in (["a-soon", "b", "a-late"], ["b", "a-soon", "a-late"])
