"""Helpers of `test_replay.py` and of other tests."""

from datetime import timedelta

from backlogs import START, settled, several
from msgspec import Raw

from pop_stream.lab.replay.replay import ReadyInput
from pop_stream.model.definitions import Customer, Definitions, Insight
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import (
    Claim,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightTick,
    Origin,
    RoundDecided,
)
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.backlog.reports import apply_relayed, apply_tick
from pop_stream.policy.fairness.flow import Share


def definitions(version: int, **weights: float) -> Definitions:
    customers = {
        CustomerId(name): Customer(id=name, weight=weight) for name, weight in weights.items()
    }
    insights = {InsightId("media"): Insight(id="media")}
    return Definitions(customers=customers, insights=insights, version=version)


class Recorder:
    """A scheduler's day, recorded as the topics would."""

    def __init__(self) -> None:
        self.versions = [definitions(1)]
        self.inputs: list[ReadyInput] = []
        self.decisions: list[RoundDecided] = []
        self.beginnings = []
        self._offset = 0
        self._now = START
        self._backlog = Backlog(Insight(id="media"), self._share)

    def _share(self, customer_id: CustomerId) -> Share:
        return Share(weight=self.versions[-1].customer(customer_id).weight)

    def reweigh(self, **weights: float) -> None:
        self.versions.append(definitions(len(self.versions) + 1, **weights))
        self._backlog.reconfigure(Insight(id="media"))

    def place(self, customer_id: str, count: int) -> None:
        agendas = several(customer_id, count, first=self._offset * 1000)
        origins = [Origin(partition=0, offset=self._offset, index=i) for i in range(count)]
        bodies = tuple(Raw(encode(one)) for one in agendas)
        event = InsightAgendasRouted(insight_id="media", agendas=bodies, origins=tuple(origins))
        self._record(event)
        self._backlog.place([agendas[i] for i in self._backlog.filter_new(agendas, origins)])

    def settle(self, agenda_ids: list[str], seconds: float) -> None:
        claims = tuple(Claim(agenda_id=one, attempt=1) for one in agenda_ids)
        ends = tuple(settled(one, noop=seconds) for one in agenda_ids)
        self._record(
            InsightAttemptsReported(insight_id="media", claims=claims, settlements=ends)
        )
        for claim in claims:
            self._backlog.claim(claim.agenda_id, claim.attempt)
        for end in ends:
            self._backlog.settle(end)

    def round(self, slots: int) -> list[str]:
        self._record(InsightTick(insight_id="media"))
        self._backlog.apply_due(self._now.timestamp())
        chosen = self._backlog.choose(slots, self._now.timestamp())
        self.decisions.append(
            RoundDecided(
                insight_id="media",
                at=self._now,
                round=self._backlog.rounds,
                algorithm="weighted_fair",
                lag=0,
                in_flight=0,
                slots=slots,
                chosen=tuple(one.agenda_id for one in chosen),
                ready=self._backlog.ready,
                virtual_time=0.0,
                customers=(),
                offset=self._offset,
                definitions=self.versions[-1].version,
            )
        )
        return [one.agenda_id for one in chosen]

    def report(self, event) -> None:
        self._record(event)
        apply_relayed(self._backlog, event, self._now.timestamp())

    def tick(self) -> None:
        """Everything recorded so far was processed."""
        event = InsightTick(insight_id="media", relayed_until=self._now)
        self._record(event)
        apply_tick(self._backlog, event, self._now.timestamp())

    @property
    def waiting(self) -> list[str]:
        return [*self._backlog.index.refs()]

    @property
    def last(self) -> str:
        return max(self._backlog.index.refs())

    def definitions_at(self, version: int) -> Definitions:
        return self.versions[version - 1]

    def _record(self, event) -> None:
        self._offset += 1
        self._now += timedelta(seconds=1)
        self.inputs.append(ReadyInput(self._offset, event, self._now.timestamp()))
