"""Players on runners, in virtual time; tells the policy what happens, and counts for itself.

Every way takes a little: from a round to the runners, and from a runner to the policy. An
attempt keeps its runner for as long as its work truly takes; one that is lost sends neither
heartbeats nor an end. A runner is free as soon as the policy has an attempt stopped.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, Literal

from pop_stream.lab.adversary.ledger import Ledger
from pop_stream.lab.adversary.play import PULSE_S, Control, Pause, Player, View, Work
from pop_stream.lab.adversary.policy_port import (
    Emission,
    Notice,
    NoticeKind,
    Outcome,
    Policy,
    Submission,
)
from pop_stream.model.definitions import Customer

_WAY_S: Final = 0.005

_STUCK_S: Final = 0.05

_LOOK_S: Final = 0.02
"""Of an attempt that looks for something and does not find it."""

State = Literal["waiting", "kept", "running", "gone"]
"""May go or is out; held, or before its next attempt; with a runner; not there."""


@dataclass(slots=True)
class _Agenda:
    """One that has not ended.

    Attributes:
        player: Whose it is, which is the party of the ledger too.
        after: What it becomes when its runner is free.
        emission: The latest attempt that is out; None if none is.
        runs: The attempt that has a runner.
    """

    work: Work
    submission: Submission
    player: Player
    state: State = "gone"
    after: State = "kept"
    emission: Emission | None = None
    runs: Emission | None = None
    began_at: float = 0.0


@dataclass(slots=True)
class _Runners:
    """Of one insight: how many, those that are idle, and the topic that they read."""

    total: int
    idle: int
    topic: deque[Emission] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Reweight:
    """An operator changes a customer's weight."""

    at: float
    customer_id: str
    weight: float


@dataclass(frozen=True, slots=True)
class Cast:
    """Who plays on what.

    Attributes:
        players: Customers.
        runners: By insight; 0 where the pullers are away.
        customers: Definitions by id, which players change.
        heartbeat_s: Between two of a running attempt.
        reweights: What operators do on the way.
    """

    players: Sequence[Player]
    runners: Mapping[str, int]
    customers: Mapping[str, Customer]
    heartbeat_s: float
    reweights: Sequence[Reweight] = ()


class Driver:
    """Runs players against a policy; one use.

    Args:
        policy: Decides.
        ledger: Counts; has a party for each player, of the same name.
        cast: Who plays on what.

    Attributes:
        most_out: Agendas that were emitted and had not ended, at most at once.
    """

    def __init__(self, policy: Policy, ledger: Ledger, cast: Cast) -> None:
        self.most_out = 0
        self._policy = policy
        self._ledger = ledger
        self._cast = cast
        self._insights = [*cast.runners]
        self._runners = {name: _Runners(total, total) for name, total in cast.runners.items()}
        self._customers = dict(cast.customers)
        self._agendas: dict[str, _Agenda] = {}
        self._of: dict[str, dict[str, None]] = {one.name: {} for one in cast.players}
        self._out = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._numbers = count(), count()
        self._now, self._due_at = 0.0, inf
        self._is_round_due = False
        for one in cast.reweights:
            self._at(one.at, partial(self._reweigh, one))

    def run(self, until: float) -> None:
        """Run from the beginning to an instant, in seconds."""
        self._pulse(0)
        while self._events and self._events[0][0] <= until:
            self._now = self._events[0][0]
            self._ledger.advance(self._now)
            while self._events and self._events[0][0] <= self._now:
                heappop(self._events)[2]()
            if self._is_round_due:
                self._is_round_due = False
                self._round()
        self._ledger.advance(until)

    def _at(self, at: float, act: Callable[[], None]) -> None:
        heappush(self._events, (at, next(self._order), act))

    # ---- players ----

    def _pulse(self, number: int) -> None:
        for player in self._cast.players:
            self._move(player, is_pulse=True)
        self._at((number + 1) * PULSE_S, partial(self._pulse, number + 1))

    def _move(self, player: Player, *, is_pulse: bool = False) -> None:
        others_wait = player.is_watchful and self._do_others_wait(player.name)
        view = View([*self._of[player.name]], others_wait)
        submitted: list[Submission] = []
        for move in player.moves(self._now, view, is_pulse=is_pulse):
            if isinstance(move, Work):
                submitted.append(self._accept(player, move))
            else:
                self._control(player, move)
        if submitted:
            self._tell(partial(self._policy.submit, submitted))

    def _do_others_wait(self, name: str) -> bool:
        return any(
            self._agendas[one].state == "waiting"
            for other, mine in self._of.items()
            if other != name
            for one in mine
        )

    def _accept(self, player: Player, work: Work) -> Submission:
        submission = Submission(
            agenda_id=f"{player.name}-{next(self._numbers)}",
            customer_id=player.customer_id,
            insight_id=self._insights[work.insight % len(self._insights)],
            at=self._now,
            operation_type=work.operation_type,
            declared_s=work.declared_s,
            key=work.key,
            priority=work.priority,
            max_attempts=work.attempts,
        )
        agenda = _Agenda(work, submission, player)
        party = self._ledger.parties[player.name]
        party.largest_s = max(party.largest_s, work.runtime_s)
        self._agendas[submission.agenda_id] = agenda
        self._of[player.name][submission.agenda_id] = None
        self._become(agenda, "waiting")
        return submission

    def _control(self, player: Player, move: Control | Pause) -> None:
        if isinstance(move, Pause):
            self._ledger.parties[player.name].paused = move.paused
            known = self._customers[player.customer_id]
            self._define(known.model_copy(update={"paused": move.paused}))
        elif (agenda := self._agendas.get(move.agenda_id)) is not None:
            self._tell(partial(self._policy.command, agenda.submission, move))

    def _reweigh(self, change: Reweight) -> None:
        self._ledger.reweigh(change.customer_id, change.weight)
        known = self._customers[change.customer_id]
        self._define(known.model_copy(update={"weight": change.weight}))

    def _define(self, customer: Customer) -> None:
        self._customers[customer.id] = customer
        self._tell(partial(self._policy.define, customer))

    # ---- what the ledger sees ----

    def _become(self, agenda: _Agenda, state: State) -> None:
        """Nobody is due a runner where there is none, so what waits there does not count."""
        party = self._ledger.parties[agenda.player.name]
        counts = self._runners[agenda.submission.insight_id].total > 0
        party.waiting += counts * ((state == "waiting") - (agenda.state == "waiting"))
        party.running += (state == "running") - (agenda.state == "running")
        agenda.state = state

    def _forget(self, agenda: _Agenda) -> None:
        name, player = agenda.submission.agenda_id, agenda.player
        self._become(agenda, "gone")
        self._set_emission(agenda, None)
        if self._agendas.pop(name, None) is not None:
            del self._of[player.name][name]
            self._at(self._now, partial(self._move, player))

    def _set_emission(self, agenda: _Agenda, emission: Emission | None) -> None:
        self._out += (emission is not None) - (agenda.emission is not None)
        self.most_out = max(self.most_out, self._out)
        agenda.emission = emission

    # ---- the policy ----

    def _tell(self, act: Callable[[float], None]) -> None:
        """Tell the policy, a way later; a round follows."""
        self._at(self._now + _WAY_S, partial(self._arrive, act))

    def _arrive(self, act: Callable[[float], None]) -> None:
        act(self._now)
        self._is_round_due = True

    def _round(self) -> None:
        emissions, notices = self._policy.round(self._now)
        for notice in notices:
            self._notice(notice)
        for one in emissions:
            agenda = self._agendas.get(one.agenda_id)
            if agenda is not None:
                self._go_on(agenda, "waiting")
                self._set_emission(agenda, one)
                self._at(self._now + _WAY_S, partial(self._deliver, one))
        due_at = self._policy.due_at()
        if due_at is not None and due_at < self._due_at:
            self._due_at = max(due_at, self._now + _STUCK_S)
            self._at(self._due_at, self._become_due)

    def _become_due(self) -> None:
        self._due_at, self._is_round_due = inf, True

    def _notice(self, notice: Notice) -> None:
        agenda = self._agendas.get(notice.agenda_id)
        if agenda is None:
            return
        if notice.kind == "stop":
            self._at(self._now + _WAY_S, partial(self._stop, agenda, notice.attempt))
        else:
            self._set_emission(agenda, None)
            self._go_on(agenda, _AFTER[notice.kind])

    def _go_on(self, agenda: _Agenda, state: State) -> None:
        """Become this, once its runner is free if it has one."""
        if agenda.runs is not None:
            agenda.after = state
        elif state == "gone":
            self._forget(agenda)
        else:
            self._become(agenda, state)

    # ---- runners ----

    def _deliver(self, emission: Emission) -> None:
        runners = self._runners[emission.insight_id]
        runners.topic.append(emission)
        self._take(runners, matched=runners.idle >= len(runners.topic))

    def _take(self, runners: _Runners, *, matched: bool) -> None:
        while runners.idle and runners.topic:
            emission = runners.topic.popleft()
            agenda = self._agendas.get(emission.agenda_id)
            if agenda is not None and agenda.emission == emission and agenda.runs is None:
                self._begin(agenda, emission, runners, matched=matched)

    def _begin(
        self, agenda: _Agenda, emission: Emission, runners: _Runners, *, matched: bool
    ) -> None:
        runners.idle -= 1
        self._become(agenda, "running")
        self._ledger.parties[agenda.player.name].runs += 1
        agenda.runs, agenda.began_at, agenda.after = emission, self._now, "kept"
        claim = partial(self._policy.claimed, emission, matched=matched, idle=runners.idle)
        self._tell(claim)
        if agenda.work.end == "lost":
            return
        runtime_s = _LOOK_S if _defers(agenda.work, emission) else agenda.work.runtime_s
        self._at(self._now + runtime_s, partial(self._end, agenda, emission))
        if runtime_s > self._cast.heartbeat_s:
            self._at(self._now + self._cast.heartbeat_s, partial(self._beat, agenda, emission))

    def _beat(self, agenda: _Agenda, emission: Emission) -> None:
        if agenda.runs == emission:
            elapsed_s = agenda.work.reports * (self._now - agenda.began_at)
            self._tell(partial(self._policy.heartbeat, emission, elapsed_s=elapsed_s))
            self._at(self._now + self._cast.heartbeat_s, partial(self._beat, agenda, emission))

    def _end(self, agenda: _Agenda, emission: Emission) -> None:
        if agenda.runs != emission or agenda.work.end == "lost":
            return
        outcome: Outcome = "succeeded" if agenda.work.end == "deferred" else agenda.work.end
        if _defers(agenda.work, emission):
            outcome = "deferred"
        self._report(agenda, emission, outcome)
        if outcome not in {"retryable", "deferred"}:
            agenda.after = "gone"
        self._free(agenda)

    def _stop(self, agenda: _Agenda, attempt: int) -> None:
        emission = agenda.runs
        if emission is None or emission.attempt > attempt:
            return
        if agenda.work.end != "lost":
            self._report(agenda, emission, "stopped")
        self._free(agenda)

    def _report(self, agenda: _Agenda, emission: Emission, outcome: Outcome) -> None:
        spent_s = agenda.work.reports * (self._now - agenda.began_at)
        self._tell(
            partial(
                self._policy.ended,
                emission,
                outcome=outcome,
                spent_s={agenda.work.operation_type: spent_s},
            )
        )

    def _free(self, agenda: _Agenda) -> None:
        party = self._ledger.parties[agenda.player.name]
        party.largest_s = max(party.largest_s, self._now - agenda.began_at)
        runners = self._runners[agenda.submission.insight_id]
        runners.idle += 1
        if agenda.emission == agenda.runs:
            self._set_emission(agenda, None)
        agenda.runs = None
        self._go_on(agenda, agenda.after)
        self._take(runners, matched=False)


def _defers(work: Work, emission: Emission) -> bool:
    return work.end == "deferred" and emission.attempt % 2 == 1


_AFTER: Final[Mapping[NoticeKind, State]] = {
    "ready": "waiting",
    "waiting": "kept",
    "ended": "gone",
}
