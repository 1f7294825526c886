"""What both ports of the summaries promise, on the fake and on Postgres."""

import asyncio
import random

import msgspec
import pytest
from lifecycle_events import (
    BODY,
    accepted,
    at,
    claimed,
    emitted,
    failed,
    operation,
    progressed,
    refused,
    restarted,
    succeeded,
)
from pydantic import SecretStr

from pop_stream.model.errors import OffsetsMovedError, UnavailableError, UnstorableError
from pop_stream.model.events.base import (
    AppendedOperation,
    Diagnostic,
    OperationProgress,
    PriorProgress,
)
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.summaries import FoldedBatch, LinkScope
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.postgres.summary_reader import PostgresSummaryReader

TOPIC = "pop.agenda-events"


def a_whole_life():
    noted = Diagnostic(message="slow disk", at=at(4), code="slow", detail={"ms": [1, 2.5]})
    half = operation("fetch", percent=33.3, message="reading", started_at=at(3))
    done = operation(
        "fetch",
        "succeeded",
        100.0,
        started_at=at(3),
        ended_at=at(5),
        result=msgspec.Raw(b'{"text": "a\\u0000b",  "n": [1, {"deep": null}]}'),
        diagnostics=(noted,),
    )
    broken = operation("store", "failed", 12.5, message="disk full", ended_at=at(6))
    return [
        accepted(),
        emitted(1),
        claimed(2),
        progressed(3, half),
        progressed(5, done),
        failed(6, broken, diagnostics=(noted, Diagnostic(message="☹", at=at(6)))),
    ]


async def test_a_summary_comes_back_as_the_core_folds_it(summaries):
    story = a_whole_life()
    assert await summaries.fold(*story) == FoldedBatch(applied=len(story), skipped=0)
    summary = await summaries.reader.agenda("a1")
    assert (summary, 0) == fold_all(None, story)
    assert summary.body == BODY


async def test_every_event_may_come_in_a_batch_of_its_own(summaries):
    story = a_whole_life()
    for event in story:
        await summaries.fold(event)
        summary = await summaries.reader.agenda("a1")
    assert (summary, 0) == fold_all(None, story)


async def test_an_acceptance_that_comes_last_completes_the_row(summaries):
    story = a_whole_life()
    await summaries.fold(*story[1:4])
    await summaries.fold(story[0])
    assert (await summaries.reader.agenda("a1"), 0) == fold_all(None, story[:4])


async def test_any_split_into_batches_gives_what_the_core_folds(summaries):
    chance = random.Random(7)
    stories = {}
    for number in range(40):
        agenda_id = f"a{number}"
        story = [
            accepted(0, agenda_id, link_id=f"link{number % 3}"),
            emitted(1, agenda_id=agenda_id),
            claimed(2, agenda_id=agenda_id),
            progressed(3, operation("fetch", percent=20), agenda_id=agenda_id),
            progressed(4, operation("fetch", "succeeded"), agenda_id=agenda_id),
            emitted(60, 2, agenda_id),
            progressed(61, operation("store"), agenda_id=agenda_id, attempt=2),
            succeeded(70, agenda_id=agenda_id, attempt=2),
        ]
        story = story[: chance.randint(1, len(story))]
        story += chance.choices(story, k=2)
        chance.shuffle(story)
        stories[agenda_id] = story
    waiting = {agenda_id: list(story) for agenda_id, story in stories.items()}
    skipped = 0
    while waiting:
        batch = []
        for agenda_id in chance.sample(sorted(waiting), k=min(12, len(waiting))):
            batch += [waiting[agenda_id].pop(0)]
            if not waiting[agenda_id]:
                del waiting[agenda_id]
        skipped += (await summaries.fold(*batch)).skipped
    folded = {agenda_id: fold_all(None, story) for agenda_id, story in stories.items()}
    for agenda_id, (summary, _) in folded.items():
        assert await summaries.reader.agenda(agenda_id) == summary
    assert skipped == sum(skips for _, skips in folded.values())
    for number in range(3):
        linked = [one for one, _ in folded.values() if one.link_id == f"link{number}"]
        link = await summaries.reader.link(LinkScope(f"link{number}"))
        assert link.total == len(linked)
        assert link.percent == pytest.approx(sum(one.percent for one in linked) / len(linked))


async def test_an_agenda_accepted_again_in_a_later_batch_is_left_as_it_is(summaries):
    await summaries.fold(accepted(), claimed(), progressed(1, operation("fetch", percent=50)))
    before = await summaries.reader.agenda("a1")
    versions = await summaries.reader.agenda_versions(["a1"])
    folded = await summaries.fold(accepted(9), claimed())
    assert folded == FoldedBatch(applied=2, skipped=0)
    assert await summaries.reader.agenda("a1") == before
    assert await summaries.reader.agenda_versions(["a1"]) == versions


async def test_how_far_an_agenda_is_tells_its_newest_attempt(summaries):
    await summaries.fold(accepted(), claimed(), failed(3))
    assert await summaries.reader.attempt_status("a1") == (1, State.RETRYING)
    await summaries.fold(emitted(60, 2))
    assert await summaries.reader.attempt_status("a1") == (2, State.EMITTED)


async def test_events_that_do_not_follow_are_counted(summaries):
    folded = await summaries.fold(accepted(), succeeded(), failed(retryable=False), refused())
    assert folded == FoldedBatch(applied=2, skipped=2)


async def test_a_new_attempt_keeps_of_unfinished_operations_how_far_they_were(summaries):
    await summaries.fold(
        accepted(),
        progressed(1, operation("fetch", "succeeded"), operation("store", percent=70)),
    )
    await summaries.fold(emitted(60, 2))
    summary = await summaries.reader.agenda("a1")
    assert summary.operations["store"] == OperationProgress(
        name="store",
        state="waiting",
        prior=PriorProgress(attempt=1, state="running", percent=70),
    )
    assert summary.percent == 50


async def test_appended_operations_and_tries_survive_and_go_with_a_reset(summaries):
    new = msgspec.Raw(b'{"name": "thumbnail", "type": "work"}')
    appended = AppendedOperation(by="fetch", at=at(1), operation=new)
    growing = msgspec.structs.replace(progressed(1), appended=(appended,))
    await summaries.fold(accepted(), growing, progressed(2, operation("thumbnail", tries=3)))
    await summaries.fold(claimed(60, 2))
    summary = await summaries.reader.agenda("a1")
    assert summary.appended == (appended,)
    assert summary.percent == 0
    await summaries.fold(
        progressed(61, operation("thumbnail", tries=2), attempt=2), succeeded(70, attempt=2)
    )
    assert (await summaries.reader.agenda("a1")).operations["thumbnail"].tries == 2
    await summaries.fold(restarted(80, attempt=3, reset="all"))
    summary = await summaries.reader.agenda("a1")
    assert (summary.appended, dict(summary.operations)) == ((), {})


async def test_operations_come_in_the_order_of_the_agenda(summaries):
    await summaries.fold(accepted(operations=("z", "m", "a")))
    await summaries.fold(progressed(1, *map(operation, ["z", "m", "a"])))
    assert list((await summaries.reader.agenda("a1")).operations) == ["z", "m", "a"]


async def test_a_large_agenda_is_folded_whole(summaries):
    names = [f"op{number:05}" for number in range(10_000)]
    await summaries.fold(accepted(operations=tuple(names)))
    await summaries.fold(
        progressed(1, *[operation(name, "succeeded") for name in names[:5000]])
    )
    await summaries.fold(claimed())
    summary = await summaries.reader.agenda("a1")
    assert (summary.percent, len(summary.operations)) == (50, 5000)
    assert (await summaries.reader.link(LinkScope("night"))).percent == 50


async def test_a_refusal_is_kept_and_the_id_can_be_used_again(summaries):
    await summaries.fold(refused())
    assert (await summaries.reader.agenda("a1"), 0) == fold_all(None, [refused()])
    await summaries.fold(accepted(5))
    assert (await summaries.reader.agenda("a1"), 0) == fold_all(None, [accepted(5)])


async def test_text_that_no_database_holds_stops_nothing(summaries):
    message = "before\0 ☾ \ud800 after"
    body = msgspec.Raw(b'{"title": "\xff"}')
    await summaries.fold(accepted(title=message, agenda=body), failed(message=message))
    summary = await summaries.reader.agenda("a1")
    for text in (summary.title, summary.message):
        assert text.startswith("before")
        assert text.endswith("after")
        assert "☾" in text


async def test_offsets_are_kept_by_topic_and_partition(summaries):
    store = summaries.store
    assert await store.next_offsets(TOPIC) == {}
    await store.fold(TOPIC, {0: (0, 5), 3: (0, 2)}, [])
    await store.fold(TOPIC, {3: (2, 9)}, [])
    await store.fold("other", {0: (0, 1)}, [])
    assert await store.next_offsets(TOPIC) == {0: 5, 3: 9}


@pytest.mark.parametrize("span", [(0, 9), (4, 9), (6, 9)])
async def test_a_batch_from_elsewhere_is_not_folded(summaries, span):
    store = summaries.store
    await store.fold(TOPIC, {0: (0, 5), 1: (0, 5)}, [])
    with pytest.raises(OffsetsMovedError):
        await store.fold(TOPIC, {0: span, 1: (5, 6)}, [accepted()])
    assert await store.next_offsets(TOPIC) == {0: 5, 1: 5}
    assert await summaries.reader.agenda("a1") is None


async def test_part_of_a_record_can_be_folded_without_moving_on(summaries):
    store = summaries.store
    await store.fold(TOPIC, {0: (0, 5)}, [])
    await store.fold(TOPIC, {0: (5, 5)}, [accepted()])
    await store.fold(TOPIC, {0: (5, 6)}, [accepted(), claimed()])
    assert await store.next_offsets(TOPIC) == {0: 6}
    assert (await summaries.reader.agenda("a1")).state is State.RUNNING


async def test_a_topic_that_was_made_anew_is_read_from_its_start(summaries):
    store = summaries.store
    await store.fold(TOPIC, {0: (0, 500)}, [])
    await store.fold(TOPIC, {0: (500, 3)}, [])
    assert await store.next_offsets(TOPIC) == {0: 3}


async def test_an_event_that_can_never_be_stored_is_distinguished(summaries):
    with pytest.raises(UnstorableError):
        await summaries.fold(accepted(), accepted(0, "a\0b"))
    assert await summaries.store.next_offsets(TOPIC) == {}
    assert await summaries.reader.agenda("a1") is None


async def test_what_never_existed_is_absent(summaries):
    reader = summaries.reader
    assert await reader.agenda("nobody") is None
    assert await reader.agenda("no\0body") is None
    assert await reader.link(LinkScope("nobody")) is None
    assert await reader.link(LinkScope("no\0body")) is None
    assert await reader.attempt_status("nobody") is None
    assert await reader.attempt_status("no\0body") is None
    assert await reader.agenda_versions(["nobody"]) == {}
    assert await reader.link_versions([LinkScope("nobody")]) == {}
    await reader.ping()


async def test_a_link_is_counted_exactly(summaries):
    await summaries.fold(
        *[accepted(0, f"a{number}") for number in range(250)],
        *[succeeded(agenda_id=f"a{number}") for number in range(100)],
        progressed(1, operation("fetch", percent=50), agenda_id="a200"),
        accepted(0, "elsewhere", link_id="day"),
        accepted(0, "alone", link_id=None),
    )
    link = await summaries.reader.link(LinkScope("night"))
    assert link.counts == {State.SUCCEEDED: 100, State.READY: 149, State.RUNNING: 1}
    assert link.percent == pytest.approx((100 * 100 + 25) / 250)
    assert (link.link_id, link.total, link.state) == ("night", 250, State.RUNNING)


async def test_a_customer_sees_its_own_part_of_a_link(summaries):
    reader = summaries.reader
    ours, theirs, nobodys = (LinkScope("night", one) for one in ("acme", "beta", "gamma"))
    await summaries.fold(accepted(), accepted(0, "b1", customer_id="beta"))
    await summaries.fold(claimed())
    assert (await reader.link(ours)).counts == {State.RUNNING: 1}
    assert (await reader.link(theirs)).counts == {State.READY: 1}
    assert await reader.link(nobodys) is None
    assert (await reader.link(LinkScope("night"))).total == 2
    before = await reader.link_versions([ours, theirs, nobodys, LinkScope("night")])
    assert set(before) == {ours, theirs, LinkScope("night")}
    await summaries.fold(succeeded())
    after = await reader.link_versions([ours, theirs])
    assert after[ours] > before[ours]
    assert after[theirs] == before[theirs]


async def test_owners_of_agendas_are_read(summaries):
    await summaries.fold(accepted(), accepted(0, "b1", customer_id="beta"))
    owners = await summaries.reader.agenda_owners(["a1", "b1", "unknown"])
    assert owners == {"a1": "acme", "b1": "beta"}


async def test_agendas_are_found_by_what_their_customers_call_them(summaries):
    ids = ("a1", "a1@acme", "a1@beta", "a1@gamma", "a10@acme", "b@a1")
    await summaries.fold(*(accepted(agenda_id=one) for one in ids))
    found = await summaries.reader.find_by_name("a1")
    assert (found[0], len(found)) == ("a1", 3)
    assert set(found) < {"a1", "a1@acme", "a1@beta", "a1@gamma"}
    assert await summaries.reader.find_by_name("a10") == ["a10@acme"]
    assert await summaries.reader.find_by_name("acme") == []


async def test_what_was_accepted_is_reported_with_whose_it_is(summaries):
    await summaries.fold(accepted(), accepted(0, "b1", customer_id="beta"))
    await summaries.fold(claimed(0, agenda_id="early"))
    got = await summaries.reader.accepted_bodies(["a1", "b1", "early", "unknown"])
    assert got == {"a1": ("acme", bytes(BODY)), "b1": ("beta", bytes(BODY))}


async def test_ids_of_what_was_refused_are_free_again(summaries):
    await summaries.fold(refused(), accepted(0, "a2"))
    assert await summaries.reader.reusable_ids(["a1", "a2", "a3"]) == (frozenset({"a1"}), None)


async def test_versions_grow_with_every_change(summaries):
    reader = summaries.reader
    seen = []
    for event in [accepted(), claimed(), accepted(0, "a2"), succeeded(agenda_id="a2")]:
        await summaries.fold(event)
        agendas = await reader.agenda_versions(["a1", "a2", "a3"])
        links = await reader.link_versions([LinkScope("night"), LinkScope("day")])
        seen.append((agendas.get("a1", 0), agendas.get("a2", 0), links[LinkScope("night")]))
        assert set(links) == {LinkScope("night")}
    first, second, third, fourth = seen
    assert 0 < first[0] < second[0] == third[0] == fourth[0]
    assert 0 == second[1] < third[1] < fourth[1]
    assert first[2] < second[2] < third[2] < fourth[2]


async def test_agendas_that_two_processes_fold_at_once_lose_nothing(summaries):
    agendas = [f"a{number}" for number in range(30)]
    names = {partition: [f"{partition}-{n}" for n in range(10)] for partition in (0, 1)}
    every = (*names[0], *names[1])
    await summaries.fold(*(accepted(0, one, operations=every) for one in agendas))

    async def fold(partition):
        for offset, name in enumerate(names[partition]):
            done = operation(name, "succeeded")
            batch = [progressed(1, done, agenda_id=agenda_id) for agenda_id in agendas]
            span = (offset + 1 - partition, offset + 2 - partition)
            await summaries.store.fold(TOPIC, {partition: span}, batch)

    await asyncio.gather(fold(0), fold(1))
    for agenda_id in agendas:
        assert set((await summaries.reader.agenda(agenda_id)).operations) == set(every)
    assert (await summaries.reader.link(LinkScope("night"))).percent == 100
    versions = await summaries.reader.agenda_versions(agendas)
    assert set(versions.values()) == {21}  # each fold was made upon the one before


async def test_a_database_that_is_away_is_reported_as_such(settings, unused_tcp_port):
    dsn = SecretStr(f"postgresql://nobody@127.0.0.1:{unused_tcp_port}/nothing")
    async with open_pool(settings.model_copy(update={"postgres_dsn": dsn})) as pool:
        store, reader = PostgresSummaries(pool), PostgresSummaryReader(pool)
        for answer in (
            store.next_offsets(TOPIC),
            store.fold(TOPIC, {0: (0, 1)}, []),
            reader.agenda("a1"),
            reader.link(LinkScope("night")),
            reader.attempt_status("a1"),
            reader.agenda_versions(["a1"]),
            reader.link_versions([LinkScope("night")]),
            reader.ping(),
        ):
            with pytest.raises(UnavailableError):
                await answer


async def test_what_another_process_has_written_since_is_folded_upon(settings):
    """The first store remembers what it wrote; meanwhile an agenda's events go elsewhere."""
    await migrate(settings.postgres_dsn.get_secret_value())
    story = a_whole_life()
    async with open_pool(settings) as pool:
        mine, others = PostgresSummaries(pool), PostgresSummaries(pool)
        for offset, event in enumerate(story):
            store = others if offset == 3 else mine
            await store.fold(TOPIC, {0: (offset, offset + 1)}, [event])
        summary = await PostgresSummaryReader(pool).agenda("a1")
    assert (summary, 0) == fold_all(None, story)


async def test_what_was_rolled_back_is_not_folded_upon(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        store = PostgresSummaries(pool)
        await store.fold(TOPIC, {0: (0, 1)}, [accepted()])
        with pytest.raises(OffsetsMovedError):
            await store.fold(TOPIC, {0: (0, 1)}, [emitted(1), claimed(2)])
        await store.fold(TOPIC, {0: (1, 2)}, [emitted(1), claimed(2)])
        summary = await PostgresSummaryReader(pool).agenda("a1")
    assert (summary, 0) == fold_all(None, [accepted(), emitted(1), claimed(2)])


async def test_an_agenda_refused_again_for_the_same_keeps_its_newest_body(summaries):
    first, second = refused(0), refused(1)
    bodies = [msgspec.Raw(b'{"id": "a1", "n": %d}' % number) for number in (1, 2)]
    for event, body in zip((first, second), bodies, strict=True):
        await summaries.fold(msgspec.structs.replace(event, agenda=body))
    assert (await summaries.reader.agenda("a1")).body == bytes(bodies[1])


async def test_a_table_is_never_read_whole_however_it_grew(settings):
    """Each plan is made while the tables are empty, where a scan would be the cheapest."""
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings, for_rollup=True) as pool:
        store, before = PostgresSummaries(pool), await _scans(pool)
        done = operation("fetch", "succeeded")
        for number in range(20):
            agendas = [f"{number}-{one}" for one in range(20)]
            for index, batch in enumerate(
                (
                    [accepted(0, one) for one in agendas],
                    [claimed(1, agenda_id=one) for one in agendas],
                    [succeeded(2, done, agenda_id=one) for one in agendas],
                ),
                start=3 * number,
            ):
                await store.fold(TOPIC, {0: (index, index + 1)}, batch)
        assert await _scans(pool) == before


async def _scans(pool):
    async with pool.acquire() as connection:
        await connection.execute("select pg_stat_force_next_flush()")
        return await connection.fetch(
            "select relname, seq_scan from pg_stat_user_tables "
            "where relname in ('agendas', 'operations') order by relname"
        )


async def test_what_is_done_before_the_commit_knows_the_agenda_and_may_prevent_it(summaries):
    """As when ends are published: if they cannot be, nothing is folded."""
    found = []

    async def fails(changes):
        msg = "the brokers are away"
        raise UnavailableError(msg)

    async def keeps(changes):
        found.extend(changes)

    await summaries.store.fold(TOPIC, {0: (0, 1)}, [accepted(), claimed()], keeps)
    assert [(one.before, one.after.body) for one in found] == [(None, BODY)]
    with pytest.raises(UnavailableError):
        await summaries.store.fold(TOPIC, {0: (1, 2)}, [succeeded()], fails)
    assert (await summaries.reader.agenda("a1")).state is State.RUNNING
    assert await summaries.store.next_offsets(TOPIC) == {0: 1}
    found.clear()
    await summaries.store.fold(TOPIC, {0: (1, 2)}, [succeeded()], keeps)
    [(before, after)] = found
    assert (before.state, after.state, after.body) == (State.RUNNING, State.SUCCEEDED, BODY)
