"""Policies to judge the adversary by: one that is fair by construction, and unfair ones."""

from collections.abc import Sequence

from pop_stream.lab.adversary.play import Control
from pop_stream.lab.adversary.policy_port import Emission, Notice, PolicySetup, Submission


class LeastDelivered:
    """Gives the next slot to whoever has run least by weight; believes nobody.

    It sees what runs, so it charges what runs while it runs. One insight, and agendas that
    end: no retries, leases, holds or caps.
    """

    def __init__(self, setup: PolicySetup, *, slots: int = 4) -> None:
        self.weights = {name: one.weight for name, one in setup.customers.items()}
        self.waiting: dict[str, list[Submission]] = {}
        self.delivered: dict[str, float] = {}
        self.since: dict[str, tuple[str, float]] = {}
        self.slots = slots

    def submit(self, agendas: Sequence[Submission], now: float) -> None:
        for one in agendas:
            mine = self.waiting.setdefault(one.customer_id, [])
            if not mine and not self.out(one.customer_id):
                active = [other for other, waits in self.waiting.items() if waits]
                least = min((self.served(other, now) for other in active), default=0.0)
                weight = self.weights[one.customer_id]
                lifted = max(self.served(one.customer_id, now), least) * weight
                self.delivered[one.customer_id] = lifted
            mine.append(one)

    def out(self, customer_id: str) -> int:
        return sum(owner == customer_id for owner, _ in self.since.values())

    def served(self, customer_id: str, now: float) -> float:
        runs = sum(now - at for owner, at in self.since.values() if owner == customer_id)
        return (self.delivered.get(customer_id, 0.0) + runs) / self.weights[customer_id]

    def choose(self, active: Sequence[str], now: float) -> str:
        return min(active, key=lambda one: (self.served(one, now), self.out(one), one))

    def claimed(self, emission: Emission, now: float, *, matched: bool, idle: int) -> None:
        del matched, idle
        owner, _ = self.since[emission.agenda_id]
        self.since[emission.agenda_id] = (owner, now)

    def heartbeat(self, emission: Emission, now: float, *, elapsed_s: float) -> None:
        pass

    def ended(self, emission: Emission, now: float, *, outcome, spent_s) -> None:
        del outcome, spent_s
        owner, at = self.since.pop(emission.agenda_id)
        self.delivered[owner] = self.delivered.get(owner, 0.0) + now - at

    def command(self, agenda: Submission, command: Control, now: float) -> None:
        pass

    def define(self, customer, now: float) -> None:
        self.weights[customer.id] = customer.weight

    def round(self, now: float) -> tuple[Sequence[Emission], Sequence[Notice]]:
        emitted = []
        while len(self.since) < self.slots and any(self.waiting.values()):
            active = [one for one, mine in self.waiting.items() if mine]
            chosen = self.choose(active, now)
            agenda = self.waiting[chosen].pop(0)
            self.since[agenda.agenda_id] = (chosen, now)
            emitted.append(Emission(agenda.agenda_id, 1, agenda.insight_id))
        return emitted, []

    def due_at(self) -> float | None:
        return None


class PrefersAttacker(LeastDelivered):
    """The attacker's weight is a fifth more than it is defined to be."""

    def __init__(self, setup: PolicySetup, *, slots: int = 4) -> None:
        super().__init__(setup, slots=slots)
        self.weights["m"] *= 1.2


class BelievesDeclarations(LeastDelivered):
    """Charges what is declared, and nothing else."""

    def __init__(self, setup: PolicySetup, *, slots: int = 4) -> None:
        super().__init__(setup, slots=slots)
        self.charged: dict[str, float] = {}

    def choose(self, active: Sequence[str], now: float) -> str:
        chosen = min(active, key=lambda one: (self.charged.get(one, 0.0), one))
        declared_s = self.waiting[chosen][0].declared_s or 1.0
        charge = self.charged.get(chosen, 0.0) + declared_s / self.weights[chosen]
        self.charged[chosen] = charge
        return chosen


class LeavesLastOut(LeastDelivered):
    """Chooses one of the victims only if nobody else waits."""

    def choose(self, active: Sequence[str], now: float) -> str:
        others = [one for one in active if one != "w"]
        return super().choose(others or active, now)
