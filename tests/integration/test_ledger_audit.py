"""The audit of a live system: what is missing is found and placed again; what moves is not."""

from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
import pytest_asyncio
from deadlines import within
from ledger_world import (
    PATIENCE_S,
    LedgerWorld,
    accepted,
    claimed,
    parts,
    running_ledger_world,
    succeeded,
)

from pop_stream.cli.ledger import lines, report
from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.reconciler import audit_ledger
from pop_stream.composition.rollup import run_rollup
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.kafka.lifecycle_reader import ready_record
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.scheduling import InsightAttemptsReported, Settlement
from pop_stream.policy.lifecycle.states import State

MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), target=4)
NOTHING = timedelta(0)


class World(LedgerWorld):
    async def audit(self, **changes):
        known = {"quiet": NOTHING, "repair": False, **changes}
        async with within(PATIENCE_S):
            return await audit_ledger(self.settings, **known)

    async def note(self, noted):
        partitions = await self.publisher.partitions(self.names.ready)
        known = Definitions(insights={"media": MEDIA})
        await self.publisher.publish(
            [ready_record(self.names, known, noted, partitions=partitions)]
        )


def missing(audit):
    return sorted(one.row.agenda_id for one in audit.discrepancies if one.kind == "missing")


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    async with running_ledger_world(settings, tmp_path, MEDIA, World) as world:
        yield world


ALL = (run_ingest, run_scheduler, run_rollup)


async def test_what_waits_and_runs_as_it_should_is_no_fault(world):
    ids = [f"a-{number}" for number in range(20)]
    async with parts(world.settings, *ALL):
        await world.submit(*ids)
        await world.until_known(*ids)
        audit = await world.audit()
    assert audit.checked >= 20
    assert not missing(audit)
    assert {one.kind for one in audit.discrepancies} <= {"not_claimed"}  # there is no puller


async def test_an_empty_ledger_is_clean(world):
    async with parts(world.settings, *ALL):
        audit = await world.audit()
    assert audit.is_clean
    assert "agree" in "\n".join(lines(audit, repair=False))


async def test_what_nobody_has_is_found_and_placed_again_once(world):
    async with parts(world.settings, *ALL):
        await world.tell(accepted("lost"), accepted("died"), claimed("died"))
        await world.submit("fine")
        await world.until_known("lost", "died", "fine")
        found = await world.audit()
        assert missing(found) == ["died", "lost"]
        assert report(found)["faults"]["missing"] == 2
        assert not found.is_clean
        assert "--repair" in "\n".join(lines(found, repair=False))

        repaired = await world.audit(repair=True)
        assert sorted(repaired.repaired) == ["died", "lost"]
        await world.until_known("lost", "died", states={State.EMITTED})
        recheck = await world.audit(repair=True)
        assert not recheck.repaired
        attempts = {one.agenda_id: one.attempt for one in await world.emitted()}
    # One that was claimed may still run somewhere: the next attempt outdates it.
    assert attempts == {"fine": 1, "lost": 1, "died": 2}


async def test_what_is_emitted_and_not_claimed_is_reported_and_left_to_the_scheduler(world):
    async with parts(world.settings, *ALL):
        await world.submit("waits")
        await world.until_known("waits", states={State.EMITTED})
        audit = await world.audit(repair=True)
    assert [(one.row.agenda_id, one.kind) for one in audit.discrepancies] == [
        ("waits", "not_claimed")
    ]
    assert not audit.repaired


async def test_what_changed_lately_is_passed_over(world):
    async with parts(world.settings, *ALL):
        await world.tell(accepted("new"))
        await world.until_known("new")
        audit = await world.audit(quiet=timedelta(minutes=5))
    assert audit.checked == 0


async def test_without_a_scheduler_nothing_is_called_missing(world):
    async with parts(world.settings, run_rollup):
        await world.tell(accepted("waits"))
        await world.until_known("waits")
        audit = await world.audit(repair=True)
    assert not audit.discrepancies
    assert list(audit.unanswered) == ["media"]
    assert not audit.is_clean


async def test_while_the_rollup_is_down_nothing_is_said(world, monkeypatch):
    monkeypatch.setattr("pop_stream.reconciler.progress._FOLD_TIMEOUT_S", 1.0)
    async with parts(world.settings, *ALL):
        await world.submit("a")
        await world.until_known("a")
    await world.tell(accepted("b"))
    with pytest.raises(UnavailableError, match="rollup"):
        await world.audit()


async def test_offsets_beyond_the_topic_are_found(world):
    async with parts(world.settings, *ALL):
        await world.submit("a")
        await world.until_known("a", states={State.EMITTED})  # nothing more is folded then
        await world.ledger._pool.execute("update consumed_offsets set next_offset = 1000000")
        audit = await world.audit()
    assert "made anew" in audit.offsets[0]
    assert not audit.is_clean


async def test_a_summary_that_is_gone_or_contradicts_kafka_is_rebuilt(world):
    pool = world.ledger._pool
    async with parts(world.settings, *ALL):
        await world.tell(accepted("done"), claimed("done"), succeeded("done"))
        await world.submit("gone", "wrong", "fine")
        await world.until_known("gone", "wrong", "fine", states={State.EMITTED})
        await world.until_known("done", states={State.SUCCEEDED})
        before = {row["agenda_id"]: row for row in await pool.fetch("select * from agendas")}
        await pool.execute("delete from agendas where agenda_id = 'gone'")
        # What was done would be placed again, and what waits be taken for done.
        await pool.execute(
            "update agendas set state = 'running', ended_at = null where agenda_id = 'done'"
        )
        await pool.execute(
            "update agendas set state = 'succeeded', ended_at = now() where agenda_id = 'wrong'"
        )
        found = await world.audit()
        kinds = {one.row.agenda_id: one.kind for one in found.discrepancies}
        assert kinds == {
            "gone": "no_summary", "wrong": "summary", "done": "summary", "fine": "not_claimed",
        }  # fmt: skip
        assert "--repair" in "\n".join(lines(found, repair=False))

        repaired = await world.audit(repair=True)
        assert {*repaired.repaired} == {"gone", "wrong", "done"}
        assert not repaired.unrepairable
        after = {row["agenda_id"]: row for row in await pool.fetch("select * from agendas")}
        passing = {"version", "updated_at"}
        assert {
            one: {k: v for k, v in row.items() if k not in passing}
            for one, row in after.items()
        } == {
            one: {k: v for k, v in row.items() if k not in passing}
            for one, row in before.items()
        }
        # The rollup goes on with what was made anew.
        await world.tell(*(succeeded(one) for one in ("gone", "wrong", "fine")))
        await world.until_known("gone", "wrong", "fine", states={State.SUCCEEDED})
        recheck = await world.audit()
        assert (recheck.discrepancies, recheck.is_clean) == ([], True)
        attempts = sorted((one.agenda_id, one.attempt) for one in await world.emitted())
    assert attempts == [("fine", 1), ("gone", 1), ("wrong", 1)]


@asynccontextmanager
async def ended_unheard(world):
    """Agenda a has ended, and nobody carries that to the scheduler, which runs in the block."""
    async with parts(world.settings, *ALL):
        await world.submit("a")
        await world.until_known("a", states={State.EMITTED})
    async with parts(world.settings, run_scheduler, run_rollup):
        await world.tell(claimed("a"), succeeded("a"))
        await world.until_known("a", states={State.SUCCEEDED})
        yield


async def test_an_end_that_the_scheduler_missed_is_published_to_it_again(world):
    async with ended_unheard(world):
        repaired = await world.audit(repair=True)
        assert [one.kind for one in repaired.discrepancies] == ["ended"]
        assert (repaired.repaired, repaired.is_clean) == (["a"], True)
        assert (await world.audit()).discrepancies == []


async def test_an_end_is_published_to_a_scheduler_that_has_gone_on_to_the_next_attempt(world):
    async with ended_unheard(world):
        lost = Settlement(agenda_id="a", attempt=1, outcome="failed", retryable=True)
        await world.note(InsightAttemptsReported(insight_id="media", settlements=(lost,)))
        async with within(PATIENCE_S):
            while [one.attempt for one in await world.emitted()] != [1, 2]:
                pass
        repaired = await world.audit(repair=True)
        assert [(one.kind, one.scheduler_attempt) for one in repaired.discrepancies] == [
            ("ended", 2)
        ]
        assert (repaired.repaired, repaired.is_clean) == (["a"], True)
        assert (await world.audit()).discrepancies == []
