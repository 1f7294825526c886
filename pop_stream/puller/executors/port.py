"""The port `Executor`: one place where operations run outside of the puller.

A *run* is what an executor keeps of one try of an operation: a Kubernetes Job, a container, a
Ray job or task. Its name follows from the operation, so whoever submits it again finds it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import ClassVar, Final, Literal, Protocol, TypeVar

from pop_stream.model.errors import PopStreamError
from pop_stream.puller.handlers.invocation import OperationCall

RunState = Literal["queued", "pending", "running", "succeeded", "failed"]
"""`queued`: held back by a queue of the executor's own. `pending`: about to start. A run that
was cancelled counts as `failed`, also while it ends."""

ENDED: Final[frozenset[RunState]] = frozenset({"succeeded", "failed"})

LOG_BYTES: Final = 64 * 1024
"""Most bytes of a log that an executor returns: the last ones."""

Spec = TypeVar("Spec")


class ExecutorUnavailableError(PopStreamError):
    """The executor cannot be asked now, or takes no more now; the same call may work later."""

    code: ClassVar[str] = "executor_unavailable"


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Whose run it is.

    Attributes:
        agenda_id: Of the agenda.
        operation: Its name in the agenda.
        attempt: At the agenda.
        tries: Of the operation in that attempt.
        customer_id: Whose agenda it is, for people who look at the executor.
        insight_id: Likewise.
    """

    agenda_id: str
    operation: str
    attempt: int
    tries: int = 1
    customer_id: str = ""
    insight_id: str = ""

    @classmethod
    def of(cls, call: OperationCall) -> "RunIdentity":
        """The run of a call of a handler."""
        return cls(
            call.agenda_id,
            call.name,
            call.attempt,
            call.tries,
            call.customer_id,
            call.insight_id,
        )

    @property
    def key(self) -> str:
        """The same for all attempts at the operation: 24 hexadecimal digits."""
        return sha256(f"{self.agenda_id}\0{self.operation}".encode()).hexdigest()[:24]

    @property
    def suffix(self) -> str:
        """Of its name, unlike that of any other: letters, digits and dashes, below 50."""
        return f"{self.key}-{self.attempt}-{self.tries}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a program is given to know for what it runs."""
        return {
            "AGENDA_ID": self.agenda_id,
            "AGENDA_OPERATION": self.operation,
            "AGENDA_ATTEMPT": str(self.attempt),
            "AGENDA_CUSTOMER_ID": self.customer_id,
        }

    @property
    def facts(self) -> dict[str, str]:
        """All of it as text, from which `from_facts` makes it again."""
        return {
            "agenda": self.agenda_id,
            "operation": self.operation,
            "attempt": str(self.attempt),
            "try": str(self.tries),
            "customer": self.customer_id,
            "insight": self.insight_id,
        }

    def labels(self, prefix: str) -> dict[str, str]:
        """The facts as an executor keeps them, each name behind a prefix of ours."""
        return {f"{prefix}{name}": value for name, value in self.facts.items()}

    @classmethod
    def from_labels(cls, labels: Mapping[str, str], prefix: str) -> "RunIdentity | None":
        """The identity that made these; None if they are somebody else's."""
        known = {name.removeprefix(prefix): value for name, value in labels.items()}
        return cls.from_facts(known)

    @classmethod
    def from_facts(cls, facts: Mapping[str, str]) -> "RunIdentity | None":
        """The identity that made these; None if they are somebody else's."""
        try:
            return cls(
                facts["agenda"],
                facts["operation"],
                int(facts["attempt"]),
                int(facts["try"]),
                facts.get("customer", ""),
                facts.get("insight", ""),
            )
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How a run is.

    Attributes:
        state: See `RunState`.
        reason: The executor's own word for it, such as `ImagePullBackOff`, or empty.
        message: For people: where it runs, why it does not, how it failed.
        is_stuck: It is pending for a reason that seldom goes away by itself.
        is_retryable: Of one that failed: whether another run may end better.
        started_at: When its program began; None if it has not, or nobody knows.
        ended_at: When its program ended.
        exit_code: Of the program, if it has ended and has one.
        output: What it left as its result, as text; empty for nothing but its log.
    """

    state: RunState
    reason: str = ""
    message: str = ""
    is_stuck: bool = False
    is_retryable: bool = True
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    output: str = ""

    def has_outrun(self, limit_s: float, now: datetime) -> bool:
        """Whether it runs, and has for longer than it may; a limit of 0 is none."""
        if self.state != "running" or self.started_at is None or not limit_s:
            return False
        return (now - self.started_at).total_seconds() > limit_s


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A run that this installation submitted.

    Attributes:
        created_at: When it was submitted, by the executor's clock.
    """

    name: str
    identity: RunIdentity
    status: RunStatus
    created_at: datetime


class Executor(Protocol[Spec]):
    """Where runs are. Every method may raise `ExecutorUnavailableError`."""

    kind: str
    """The word for it in messages and logs, such as `kubernetes`."""

    def read(self, payload: object) -> Spec:
        """What a payload asks for; pure.

        Raises:
            FinalError: With field, value and remedy, if it cannot be had here.
        """
        ...

    def size(self, spec: Spec) -> float:
        """How many workers' worth the run takes; above 0. Its seconds count so many times."""
        ...

    def name(self, identity: RunIdentity) -> str:
        """The name of the run, which follows from the identity alone."""
        ...

    async def submit(self, identity: RunIdentity, spec: Spec) -> None:
        """Have it run. A second call with the same identity changes nothing.

        Raises:
            FinalError: If the executor will never take it.
            RetryableError: If an operator has to do something first.
        """
        ...

    async def status(self, name: str) -> RunStatus | None:
        """How it is now; None if there is no such run, or no more."""
        ...

    async def cancel(self, name: str) -> None:
        """Have it end: its program is asked to, and killed if it does not.

        Returns before it has ended. From then on its status is `failed`, or None. Of a run
        that has ended, or that is not there, nothing changes or it is deleted.
        """
        ...

    async def logs_tail(self, name: str) -> str:
        """The last lines of its log, at most `LOG_BYTES`; empty if there is none."""
        ...

    async def list_own(self, key: str | None = None) -> Sequence[OwnRun]:
        """Runs that this installation submitted; with a key, those of one operation."""
        ...

    async def delete(self, name: str) -> None:
        """Leave nothing of it; one that runs is killed. Of one that is not there: nothing."""
        ...

    async def capacity(self) -> int | None:
        """How many runs of a worker's size it can hold at a time; None if it cannot say."""
        ...

    async def close(self) -> None:
        """Close connections; the next call opens them again."""
        ...


def tail_of(log: bytes | str) -> str:
    """The end of a log, from the beginning of a line where that is possible."""
    raw = log.encode(errors="replace") if isinstance(log, str) else log
    if len(raw) <= LOG_BYTES:
        return raw.decode(errors="replace")
    cut = raw[-LOG_BYTES:]
    return (cut.partition(b"\n")[2] or cut).decode(errors="replace")
