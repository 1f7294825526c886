"""Helpers of `test_decision_checkpoints.py` and of other tests."""

import random
from datetime import timedelta

from backlogs import failed, settled
from scheduler_world import PARTITIONS, SchedulerWorld

from pop_stream.lab.replay.replay import ReadyInput, final_decisions, replay_starts
from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.events.scheduling import (
    Claim,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightTick,
)
from pop_stream.policy.backlog.agenda_index import AgendaIndex
from pop_stream.policy.backlog.checkpoint import RoundCheckpoint

MEDIA = Insight(id="media", target=6, low_water=6, lease_ms=30_000, partitions=PARTITIONS)


CUSTOMERS = (
    Customer(id="ann"),
    Customer(id="bob", weight=3.0),
    Customer(id="cat", rate_per_s=0.02, burst=4),
    Customer(id="dan", max_in_flight=2),
)


class Day(SchedulerWorld):
    """Some hours of a scheduler, with all that the topics would hold of them."""

    def __init__(self, seed, **insight):
        super().__init__(MEDIA.model_copy(update=insight))
        self.chance = random.Random(seed)
        self.define(customers=CUSTOMERS)
        self.versions = {self.definitions.current.version: self.definitions.current}
        self.inputs = []
        self.placed = 0

    async def handle(self, *ready_events, **kwargs):
        self.clock.move(timedelta(seconds=20))
        await super().handle(*ready_events, **kwargs)
        self.inputs += [
            ReadyInput(self.offset, event, self.clock.now().timestamp())
            for event in ready_events
        ]

    async def pass_hours(self, steps):
        for _ in range(steps):
            deed = self.chance.choice([self.arrive, self.end_some, self.end_some, self.look])
            await deed()

    async def arrive(self):
        name = self.chance.choice(CUSTOMERS).id
        await self.place(name, self.chance.randint(1, 9), first=self.placed)
        self.placed += 10

    async def end_some(self):
        index = self.insight().backlog.index if self.handler.insights() else AgendaIndex()
        notes = [(name, index.in_flight_record(ref)) for name, ref in index.refs().items()]
        out = [(name, note.attempt) for name, note in notes if note is not None]
        some = self.chance.sample(out, k=min(len(out), 3))
        ends = [failed(name, attempt) for name, attempt in some[:1]]
        ends += [
            settled(name, attempt, noop=self.chance.uniform(0.1, 5.0))
            for name, attempt in some[1:]
        ]
        claims = tuple(Claim(agenda_id=name, attempt=attempt) for name, attempt in out)
        await self.handle(
            InsightAttemptsReported(insight_id="media", claims=claims, settlements=tuple(ends))
        )

    async def look(self):
        await self.handle(
            InsightTick(
                insight_id="media",
                relayed_until=self.clock.now() - timedelta(seconds=1),
                lags=(0,) * PARTITIONS,
                emitted=self.insight().backlog.emitted if self.handler.insights() else 0,
            )
        )

    def reweigh(self, **weights):
        current = self.definitions.current.customers
        self.define(
            customers=[
                current[name].model_copy(update={"weight": weight})
                for name, weight in weights.items()
            ]
        )
        self.versions[self.definitions.current.version] = self.definitions.current

    def restart(self):
        self.handler = self.new_handler()

    def parts(self):
        return [one for one in self.published_rounds() if isinstance(one, RoundCheckpoint)]

    def replay_starts(self, decisions=None, inputs=None):
        inputs = self.inputs if inputs is None else inputs
        placings = [
            (one.offset, one.event)
            for one in inputs
            if isinstance(one.event, InsightAgendasRouted)
        ]
        return replay_starts(
            self.parts(), placings, final_decisions(decisions or self.decisions())
        )

    def definitions_at(self, version):
        return self.versions[max(one for one in self.versions if one <= version)]
