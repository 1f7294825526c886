"""The scheduler in memory: what a user's own tests rest on."""

import re
from pathlib import Path

import pytest

from pop_stream.client import ApiConflictError, ApiFaultError, ApiNotFoundError, ApiRefusedError
from pop_stream.model.definitions import Customer, Insight, Mappers, ResourcePool
from pop_stream.puller import (
    CompletedElsewhere,
    FinalError,
    Handlers,
    NotYet,
    RetryableError,
)
from pop_stream.testing import InMemoryScheduler

NOT_NOW = "the file is not there"
WRONG = "wrong payload"


def agenda(customer, *operations, **more):
    return {
        "customer_id": customer,
        "operations": operations or [{"name": "only", "type": "work"}],
        **more,
    }


def insight(insight_id="media", kind="work", **more):
    return Insight(id=insight_id, mappers=Mappers(operation_types=(kind,)), **more)


@pytest.fixture
def handlers():
    found = Handlers()

    @found.handler("work")
    async def work(operation):
        return {"by": operation.customer_id}

    return found


async def test_a_flood_does_not_delay_the_other_customer(handlers):
    async with InMemoryScheduler(
        handlers, definitions=[insight(max_in_flight=1)], takes={"work": 60.0}
    ) as scheduler:
        await scheduler.client.submit_many([agenda("flood") for _ in range(200)])
        await scheduler.client.submit_many([agenda("quiet", id=f"q{n}") for n in range(3)])
        await scheduler.run_until_idle()

        first = [one.customer_id for one in scheduler.picks[:6]]
        assert sorted(first) == ["flood"] * 3 + ["quiet"] * 3
        assert scheduler.unfinished == []
        operation = await scheduler.client.operation("q2", "only")
        assert bytes(operation.result) == b'{"by":"quiet"}'
        assert scheduler.picks[-1].at_s - scheduler.picks[0].at_s == 60.0 * 202


async def test_the_same_test_makes_the_same_picks(handlers):
    runs = []
    for _ in range(2):
        scheduler = InMemoryScheduler(handlers, runners=3, takes={"work": 0.3})
        await scheduler.client.submit_many(
            [agenda(f"c{n % 4}", priority=1 + n % 9) for n in range(80)]
        )
        await scheduler.run_until_idle()
        runs.append(scheduler.picks)
        scheduler.close()

    assert runs[0] == runs[1]


async def test_a_retry_waits_in_virtual_time_and_keeps_results(handlers):
    calls = []

    @handlers.handler("shaky")
    async def shaky(operation):
        calls.append(operation.payload)
        if operation.attempt == 1:
            raise RetryableError(NOT_NOW)

    async with InMemoryScheduler(handlers) as scheduler:
        wanted = agenda(
            "acme",
            {"name": "a", "type": "work"},
            {"name": "b", "type": "shaky", "payload": "@<a.out::/by>"},
            id="one",
            backoff={"first_s": 3600},
        )
        await scheduler.client.submit(wanted)
        await scheduler.run_for(60)
        assert (await scheduler.client.agenda("one")).state.value == "waiting"
        await scheduler.run_until_idle()

        seen = await scheduler.client.agenda("one")
        assert (seen.state.value, seen.attempt) == ("succeeded", 2)
        assert calls == ["acme", "acme"]
        types = [one.attempt for one in scheduler.picks]
        assert types == [1, 2]


async def test_a_final_failure_and_a_wait_end_as_they_do_in_production(handlers):
    looks = []

    @handlers.handler("refuse")
    async def refuse(_):
        raise FinalError(WRONG)

    @handlers.handler("gate")
    async def gate(operation):
        looks.append(operation.attempt)
        if len(looks) < 3:
            raise NotYet(600, NOT_NOW)

    async with InMemoryScheduler(handlers) as scheduler:
        await scheduler.client.submit(agenda("a", {"name": "x", "type": "refuse"}, id="f"))
        await scheduler.client.submit(agenda("a", {"name": "x", "type": "gate"}, id="g"))
        await scheduler.run_until_idle()

        failed = await scheduler.client.agenda("f")
        assert failed.state.value == "failed"
        assert "wrong payload" in failed.message
        assert (await scheduler.client.agenda("g")).state.value == "succeeded"
        assert looks == [1, 2, 3]


async def test_commands_act_as_the_api_has_them_act(handlers):
    async with InMemoryScheduler(handlers) as scheduler:
        client = scheduler.client
        await client.submit(agenda("acme", id="held", hold=True))
        await client.submit(agenda("acme", id="gone"))
        await client.cancel("gone", reason="not wanted")
        await scheduler.run_until_idle()
        assert (await client.agenda("gone")).state.value == "cancelled"
        assert (await client.agenda("held")).state.value == "held"
        await client.release("held")
        await scheduler.run_until_idle()
        assert (await client.agenda("held")).state.value == "succeeded"
        with pytest.raises(ApiConflictError):
            await client.hold("held")


async def test_an_agenda_that_runs_is_cancelled_in_virtual_time(handlers):
    async with InMemoryScheduler(handlers, takes={"work": 100}) as scheduler:
        await scheduler.client.submit(agenda("acme", id="long"))
        await scheduler.client.submit(agenda("acme", id="next"))
        await scheduler.run_for(10)
        await scheduler.client.cancel("long")
        await scheduler.run_for(1)
        assert (await scheduler.client.agenda("long")).state.value == "cancelled"
        assert (await scheduler.client.agenda("next")).state.value == "running"


async def test_what_is_not_sound_is_refused_with_the_field(handlers):
    async with InMemoryScheduler(handlers) as scheduler:
        with pytest.raises(ApiRefusedError) as refused:
            await scheduler.client.submit(agenda("acme", {"name": "x", "type": "unknown"}))
        assert refused.value.issues[0].field == "operations"
        results = await scheduler.client.submit_many([agenda("a"), {"customer_id": "b"}])
        assert (results.accepted, results.refused) == (1, 1)
        with pytest.raises(ApiRefusedError):
            await scheduler.client.submit_many([{"customer_id": "b"}])
        with pytest.raises(ApiNotFoundError):
            await scheduler.client.agenda("nobody")


async def test_what_is_not_in_memory_says_so(handlers):
    async with InMemoryScheduler(handlers) as scheduler:
        with pytest.raises(ApiFaultError, match="pop-stream dev"):
            await scheduler.client.page()
        with pytest.raises(ApiFaultError, match="pop-stream dev"):
            async for _ in scheduler.client.follow("a"):
                pass


async def test_a_pool_and_a_weight_hold(handlers):
    definitions = [
        ResourcePool(id="farm", max_in_flight=1),
        insight(pool="farm"),
        Customer(id="large", weight=3),
    ]
    async with InMemoryScheduler(handlers, definitions=definitions, runners=8) as scheduler:
        for customer in ("large", "small"):
            await scheduler.client.submit_many([agenda(customer) for _ in range(40)])
        await scheduler.run_until_idle()
        first = [one.customer_id for one in scheduler.picks[:40]]
        assert first.count("large") == pytest.approx(30, abs=2)
        instants = [one.at_s for one in scheduler.picks]
        assert len(set(instants)) == len(instants)


def test_durations_and_runners_are_checked(handlers):
    with pytest.raises(ValueError, match="takes"):
        InMemoryScheduler(handlers, takes={"work": -1})
    with pytest.raises(ValueError, match="runners"):
        InMemoryScheduler(handlers, runners=0)


async def test_the_example_of_the_guide_passes_as_printed():
    guide = Path(__file__).parents[3] / "docs" / "how-to" / "test-your-handlers.md"
    [example] = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    found = {}
    exec(compile(example, guide.name, "exec"), found)  # noqa: S102  # our own documentation
    await found["test_a_flood_does_not_delay_the_other_customer"]()


# ---- operations that are completed elsewhere ----


async def test_an_operation_is_completed_by_its_token(handlers):
    tokens = []

    @handlers.handler("call")
    async def call(operation):
        tokens.append(await operation.completion_token(within_s=600))
        raise CompletedElsewhere(tokens[-1])

    known = insight(kind="call", max_attempts=2)
    async with InMemoryScheduler(handlers, definitions=[known]) as scheduler:
        calls = {"name": "call", "type": "call"}
        ids = [
            (await scheduler.client.submit(agenda("acme", calls, id=name))).id
            for name in ("done", "again", "late")
        ]
        await scheduler.run_for(10)
        scheduler.complete(tokens[0], {"size": 12})
        with pytest.raises(ValueError, match="completes nothing"):
            scheduler.complete(tokens[0], {"size": 12})
        scheduler.complete(tokens[1], error="it crashed")
        with pytest.raises(ValueError, match="none of this scheduler"):
            scheduler.complete("nothing")
        await scheduler.run_for(60)
        done, again, late = map(scheduler.summary, ids)
        assert (done.state.value, done.attempt) == ("succeeded", 2)
        assert bytes(done.operations["call"].result) == b'{"size":12}'
        assert again.state.value == "waiting"
        assert len(tokens) == 4, "handed over anew after the failure"
        scheduler.complete(tokens[3])
        await scheduler.run_until_idle()
        assert scheduler.summary("again").state.value == "succeeded"
        late = scheduler.summary("late")
        assert late.state.value == "failed"
        assert "nobody completed it in time" in late.message
