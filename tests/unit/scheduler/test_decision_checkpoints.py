"""Rounds chosen again from a later point: what a checkpoint tells is all that is needed."""

from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest
from checkpoint_days import Day

from pop_stream.lab.replay.replay import final_decisions, replay, replay_starts
from pop_stream.lab.replay.what_if import recorded_outcomes, what_if
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import InsightAgendasRouted, RoundDecided
from pop_stream.policy.backlog import checkpoint
from pop_stream.scheduler.insight import CHECKPOINT_EVERY_S


async def a_day(seed):
    """With other weights in between, and a restart."""
    day = Day(seed)
    await day.pass_hours(60)
    day.reweigh(ann=5.0)
    await day.pass_hours(50)
    day.restart()
    await day.pass_hours(40)
    day.reweigh(bob=0.5, ann=1.0)
    await day.pass_hours(60)
    return day


@pytest.fixture(params=(2, 7, 15))
async def day(request):
    return await a_day(request.param)


async def test_rounds_come_out_the_same_from_every_checkpoint_on(day):
    rounds = final_decisions(day.decisions())
    found = day.replay_starts()
    assert len(found) >= 3
    assert sum(one.begins for one in found) == 1
    for number, one in enumerate(found):
        known = found[number:]
        kept = [decision for decision in rounds if decision.round >= one.round]
        again = [*replay(day.inputs, kept, day.definitions_at, known)]
        assert len(again) == len(kept)
        assert all(each.is_same for each in again)


async def test_what_is_before_the_first_checkpoint_is_passed_over(day):
    known = day.replay_starts()
    kept = [one for one in final_decisions(day.decisions()) if one.round > 1]
    again = [*replay(day.inputs, kept, day.definitions_at, known)]
    assert again[0].recorded.round == known[0].round > kept[0].round
    assert [*replay(day.inputs, kept, day.definitions_at)] == []


async def test_a_restart_is_gone_through_as_the_scheduler_did(day):
    """It knew neither leases nor what was left of rate limits."""
    rounds = final_decisions(day.decisions())
    again = [*replay(day.inputs, rounds, day.definitions_at, day.replay_starts())]
    assert [one.recorded.round for one in again] == [one.round for one in rounds]
    assert all(one.is_same for one in again)


@pytest.mark.parametrize("seed", [198, 239, 306])
async def test_a_look_that_chooses_nothing_makes_no_difference(seed):
    """None is on record: who takes its last token waits from then on, with or without one."""
    day = await a_day(seed)
    found = day.replay_starts()
    for number, one in enumerate(found):
        kept = [each for each in final_decisions(day.decisions()) if each.round >= one.round]
        again = [*replay(day.inputs, kept, day.definitions_at, found[number:])]
        assert all(each.is_same for each in again)


async def test_the_same_weights_change_little_from_a_checkpoint_on():
    """Slots are given back by others than they were, so a little they do."""
    day = Day(1, lease_ms=3_600_000)
    await day.pass_hours(200)
    known = day.replay_starts()
    kept = [one for one in final_decisions(day.decisions()) if one.round >= known[0].round]
    before = recorded_outcomes(day.inputs, kept, known)
    after = what_if(day.inputs, kept, day.definitions_at, {}, known)
    assert {*after} == {*before}
    for name, outcome in before.items():
        assert len(after[name].waits_s) == pytest.approx(len(outcome.waits_s), rel=0.1, abs=3)


async def test_a_checkpoint_whose_agendas_are_not_on_record_is_not_begun_with(day):
    found = day.replay_starts()
    late = [one for one in day.inputs if one.offset > day.inputs[-1].offset - 20]
    assert len(day.replay_starts(inputs=late)) < len(found)
    assert day.replay_starts(inputs=[]) == [one for one in found if not one.pages]


async def test_a_checkpoint_of_a_round_that_was_decided_anew_is_not_begun_with(day):
    found = day.replay_starts()
    other = [
        msgspec.structs.replace(one, at=one.at + timedelta(seconds=1))
        if one.round == found[0].round
        else one
        for one in day.decisions()
    ]
    assert [one.round for one in day.replay_starts(other)] == [one.round for one in found[1:]]


async def test_a_checkpoint_that_lacks_a_part_is_not_begun_with(day, monkeypatch):
    monkeypatch.setattr(checkpoint, "_PART", 2)
    day.clock.move(timedelta(seconds=CHECKPOINT_EVERY_S))
    before = len(day.replay_starts())
    while len(day.replay_starts()) == before:
        await day.pass_hours(1)
    parts = day.parts()
    assert parts[-1].parts == len([one for one in parts if one.round == parts[-1].round]) > 1
    monkeypatch.setattr(day, "parts", lambda: parts[:-1])
    assert len(day.replay_starts()) == before


async def test_none_is_written_that_would_be_too_large(monkeypatch):
    monkeypatch.setattr(checkpoint, "MAX_ENTRIES", 3)
    day = Day(1)
    await day.pass_hours(150)
    assert day.parts() == []


async def test_checkpoints_are_ten_minutes_apart_and_no_more_than_the_rounds_between(day):
    parts = [one for one in day.parts() if not one.begins]
    ats = [one.at.timestamp() for one in parts]
    assert all(after - before >= CHECKPOINT_EVERY_S for before, after in pairwise(ats))
    published = day.published_rounds()
    first, second = [published.index(one) for one in parts[:2]]
    between = [one for one in published[first + 1 : second] if isinstance(one, RoundDecided)]
    assert sum(len(encode(one)) for one in between) >= len(encode(parts[0]))


async def test_a_page_is_found_that_was_placed_with_fewer_than_came():
    """Some of those who came had come before, under another submission, and wait still."""
    day = Day(1)
    await day.place("ann", 30)
    await day.place("ann", 30, first=20)
    day.restart()
    await day.place("bob", 5)
    await day.pass_hours(20)
    [begin] = [one for one in day.replay_starts() if one.begins]
    assert [len(agendas) for _, agendas in begin.pages][:2] == [30, 20]
    kept = [one for one in final_decisions(day.decisions()) if one.round >= begin.round]
    again = [*replay(day.inputs, kept, day.definitions_at, [begin])]
    assert all(one.is_same for one in again)


async def test_what_was_placed_is_kept_only_for_the_pages_that_are_looked_for(day):
    placings = [
        (one.offset, one.event)
        for one in day.inputs
        if isinstance(one.event, InsightAgendasRouted)
    ]
    found = replay_starts(day.parts(), placings, final_decisions(day.decisions()))
    kept = {one.agenda_id for begin in found for _, page in begin.pages for one in page}
    assert kept
    assert all(bytes(one.agenda) == b"null" for _, page in found[0].pages for one in page)
    assert len(kept) < sum(len(event.agendas) for _, event in placings)
