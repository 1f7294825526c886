"""What a customer does, as genes that combine freely; and the customer who does it.

A `Play` is one line of text, such as `declared=0.01 types=fresh`: only the genes that differ
from honest play. `CHOICES` has the values that a search tries; a play written by hand may have
any number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, NamedTuple

from pop_stream.model.events.lifecycle import Action

End = Literal["succeeded", "failed", "retryable", "lost", "deferred"]


@dataclass(frozen=True, slots=True)
class Play:
    """A customer's genes; the defaults are honest: true costs, and always something to run.

    Attributes:
        runtime: Seconds that an agenda truly takes in the mean; up to a quarter more or less.
        overrun: Every fourth agenda takes so many times what it was expected to.
        declared: Worker-seconds declared, as a multiple of the truth; or `none`; `absurd`, ten
            million; `mixed`, a hundredth, the truth and a hundred times in turn.
        types: Operation types: `one` of its own, `fresh` ones for each agenda, or `shared` with
            the victims.
        ends: How agendas end; `retryable` fails until no attempt is left, in `lost` the
            pullers fall silent, `mixed` has all of these in turn; `deferred` looks for a moment
            whether something is there, waits, and works in every other attempt.
        attempts: Most attempts of an agenda.
        reports: What its worker says that an agenda took, as a multiple of the truth. A search
            leaves that true: a worker is trusted by whoever gave it the right to pull.
        timing: `always` as many outstanding as `outstanding`; `burst`, so many once in each
            `period`, if none is left; `visits`, always, but in every other period only;
            `alone`, only at moments in which nobody else waits.
        outstanding: Agendas submitted and not ended.
        period: Seconds.
        opening: Agendas submitted before the others come.
        opening_declared: As `declared`.
        opening_runtime: Seconds that each of them truly takes.
        begins: When it submits its first after the opening, in seconds.
        controls: What it commands each second: `hold` a third and release them later, `cancel`
            some that wait or run, `reprioritise`, `pause` itself and go on in turns.
        priority: Of its agendas, 1 first.
        keys: Fairness keys that it spreads its agendas over; 0 for none.
        insights: Insights of the pool that it spreads its agendas over.
        accomplices: Customers that collude.
        accomplice: What they do: the `same`, or `sparks`: one tiny agenda every third second.
        cap: Its `max_in_flight`; 0 for none.
        weight: At first.
        reweight: To what an operator sets its weight, in the middle of the time; 0 for never.
    """

    runtime: float = 1.0
    overrun: float = 1.0
    declared: str = "1"
    types: str = "one"
    ends: str = "succeeded"
    attempts: int = 3
    reports: float = 1.0
    timing: str = "always"
    outstanding: int = 24
    period: float = 10.0
    opening: int = 0
    opening_declared: str = "1"
    opening_runtime: float = 5.0
    begins: float = 0.0
    controls: str = "none"
    priority: int = 5
    keys: int = 0
    insights: int = 1
    accomplices: int = 0
    accomplice: str = "same"
    cap: int = 0
    weight: float = 1.0
    reweight: float = 0.0

    def __str__(self) -> str:
        mine = ((one.name, getattr(self, one.name), one.default) for one in fields(self))
        return " ".join(f"{name}={value}" for name, value, usual in mine if value != usual)

    def honest(self, lease_s: float) -> "Play":
        """The same true work, plainly: declared as it is, one type, always something to run.

        What is lost keeps its runner for as long as the lease is.
        """
        mixed = max(self.overrun, lease_s / self.runtime)
        return Play(
            runtime=lease_s if self.ends == "lost" else self.runtime,
            overrun=mixed if self.ends == "mixed" else self.overrun,
            begins=self.begins,
            accomplices=self.accomplices if self.accomplice == "same" else 0,
            cap=self.cap,
            weight=self.weight,
            reweight=self.reweight,
        )

    def longest_s(self, lease_s: float) -> float:
        """The longest that one of its agendas keeps a runner, by the lease of the insight."""
        opening = self.opening_runtime if self.opening else 0.0
        lost = lease_s if self.ends in {"lost", "mixed"} else 0.0
        return max(_MOST_SPREAD * self.runtime * self.overrun, opening, lost)


CHOICES: Final[Mapping[str, Sequence[Any]]] = {
    "runtime": (0.5, 1.0, 4.0, 8.0),
    "overrun": (1.0, 4.0),
    "declared": ("1", "none", "0.01", "0.1", "3", "10", "100", "absurd", "mixed"),
    "types": ("one", "fresh", "shared"),
    "ends": ("succeeded", "failed", "retryable", "lost", "mixed", "deferred"),
    "attempts": (1, 3, 100),
    "timing": ("always", "burst", "visits", "alone"),
    "outstanding": (2, 4, 8, 24),
    "period": (3.0, 10.0, 30.0),
    "opening": (0, 2, 12),
    "opening_declared": ("1", "100", "absurd"),
    "opening_runtime": (1.0, 5.0, 14.0),
    "begins": (0.0, 13.0, 20.0),
    "controls": ("none", "hold", "cancel", "reprioritise", "pause"),
    "priority": (5, 1, 9),
    "keys": (0, 2, 1000),
    "insights": (1, 2, 4, 8),
    "accomplices": (0, 1, 2),
    "accomplice": ("same", "sparks"),
    "cap": (0, 1, 2),
    "weight": (1.0, 0.25),
    "reweight": (0.0, 1.0, 10.0),
}
"""The values of every gene that a search tries."""

TRICKS: Final[Sequence[Sequence[str]]] = (
    ("declared", "types", "runtime"),
    ("declared", "runtime", "overrun"),
    ("declared", "ends", "attempts", "runtime"),
    ("timing", "outstanding", "period", "begins"),
    ("opening", "opening_declared", "opening_runtime", "begins"),
    ("accomplices", "accomplice"),
    ("weight", "reweight"),
    ("controls",),
    ("priority",),
    ("keys",),
    ("insights",),
    ("cap",),
)
"""Genes that make sense together: a play at random has all genes of a few tricks."""


def parse_play(text: str) -> Play:
    """A play from its line.

    Raises:
        ValueError: If a gene is unknown or its value is of another kind.
    """
    honest = Play()
    kinds: dict[str, type] = {one.name: type(getattr(honest, one.name)) for one in fields(Play)}
    given: dict[str, Any] = {}
    for part in text.split():
        name, _, value = part.partition("=")
        if name not in kinds:
            msg = f"there is no gene {name!r}; use some of {', '.join(kinds)}"
            raise ValueError(msg)
        try:
            given[name] = kinds[name](value)
        except ValueError:
            msg = f"{name}={value} is no {kinds[name].__name__}; write a number"
            raise ValueError(msg) from None
        _check(name, given[name])
    return replace(honest, **given)


_ABOVE_0: Final = frozenset(
    {"runtime", "overrun", "attempts", "outstanding", "period", "opening_runtime", "weight"}
)
_DECLARATIONS: Final = frozenset({"declared", "opening_declared"})
_DECLARED_WORDS: Final = ("none", "absurd", "mixed")


def _check(name: str, value: Any) -> None:  # noqa: ANN401  # of the gene's kind
    """Refuse a value that the gene cannot have.

    Raises:
        ValueError: Then.
    """
    if name in _DECLARATIONS:
        msg = f"{name}={value}: use a number, or one of {', '.join(_DECLARED_WORDS)}"
        is_right = value in _DECLARED_WORDS or _is_number(value)
    elif isinstance(value, str):
        words = [*dict.fromkeys(CHOICES[name])]
        msg = f"{name}={value}: use one of {', '.join(words)}"
        is_right = value in words
    else:
        is_positive = name in _ABOVE_0
        msg = f"{name}={value}: must {'be above' if is_positive else 'not be below'} 0"
        is_right = value > 0 if is_positive else value >= 0
    if not is_right:
        raise ValueError(msg)


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False


class Work(NamedTuple):
    """An agenda as its customer plans it; how long it takes, and how it ends, is its secret."""

    runtime_s: float
    declared_s: float | None
    operation_type: str
    end: End
    key: str
    insight: int
    priority: int
    attempts: int
    reports: float = 1.0


class Control(NamedTuple):
    """A command about one of its agendas."""

    action: Action
    agenda_id: str
    priority: int = 5


class Pause(NamedTuple):
    """Nothing of its own is to be emitted, or all again."""

    paused: bool


Move = Work | Control | Pause


@dataclass(frozen=True, slots=True)
class View:
    """What a player sees when it may move; an attacker sees more than a customer ever would.

    Attributes:
        outstanding: Its agendas that have not ended, oldest first.
        do_others_wait: Whether an agenda of anybody else waits for a runner.
    """

    outstanding: Sequence[str]
    do_others_wait: bool


PULSE_S: Final = 1.0
"""A player may move so often, and whenever one of its agendas has ended."""

_ABSURD_S: Final = 1e7
_MIXED: Final = ("0.01", "1", "100")
_ENDS: Final[Sequence[End]] = ("succeeded", "failed", "retryable", "lost")
_FOURTH: Final = 4
_THIRD: Final = 3
_SPARK_S: Final = 0.05


_GOLDEN: Final = 0.6180339887498949
_MOST_SPREAD: Final = 1.25


def _spread(number: int) -> float:
    """A factor around 1, evenly spread: agendas that all take the same run in lockstep."""
    return _MOST_SPREAD + (number * _GOLDEN % 1.0 - 1.0) / 2


class Player:
    """A customer who plays; the driver asks for its moves.

    Args:
        name: Unique.
        play: What it does.
        customer_id: Whose fairness key it is; None for a customer of that name.
        accomplice: Its number among the attacker's accomplices; 0 for none of them. They take
            turns in visits, and only they send sparks.
    """

    def __init__(
        self,
        name: str,
        play: Play,
        *,
        customer_id: str | None = None,
        accomplice: int = 0,
    ) -> None:
        self.name = name
        self.customer_id = customer_id or name
        self._key = name if customer_id else None
        self.play = play
        self._accomplice = accomplice
        self._number = 0
        self._bursts = -1
        self._held: list[str] = []
        self._has_opened = False

    @property
    def is_watchful(self) -> bool:
        """Whether it looks at the others before it moves."""
        return self.play.timing == "alone"

    def moves(self, now: float, view: View, *, is_pulse: bool) -> Iterator[Move]:
        """What it does now.

        Args:
            now: Seconds from the beginning.
            view: What it sees.
            is_pulse: Whether `PULSE_S` has passed, or one of its agendas has ended.
        """
        if self._accomplice and self.play.accomplice == "sparks":
            if is_pulse and not view.outstanding and int(now) % _THIRD == 0:
                yield self._work(_SPARK_S, "1")
            return
        if not self._has_opened:
            self._has_opened = True
            for _ in range(self.play.opening):
                yield self._work(self.play.opening_runtime, self.play.opening_declared)
            return
        for _ in range(self._wanted(now, view)):
            yield self._work(None, self.play.declared)
        if is_pulse and self.play.controls != "none":
            yield from self._controls(int(now / PULSE_S), view)

    def _wanted(self, now: float, view: View) -> int:
        """How many agendas it submits now."""
        play, missing = self.play, self.play.outstanding - len(view.outstanding)
        if now < play.begins:
            return 0
        turn = int((now - play.begins) / play.period)
        if play.timing == "burst":
            if view.outstanding or turn == self._bursts:
                return 0
            self._bursts = turn
            return play.outstanding
        if play.timing == "visits" and (turn + self._accomplice) % 2:
            return 0
        if play.timing == "alone" and view.do_others_wait:
            return 0
        return missing

    def _work(self, runtime_s: float | None, declared: str) -> Work:
        play, number = self.play, self._number
        self._number += 1
        true_s = runtime_s or play.runtime * _spread(number)
        overruns = runtime_s is None and number % _FOURTH == _FOURTH - 1
        end = _ENDS[number % len(_ENDS)] if play.ends == "mixed" else play.ends
        kind = {"fresh": f"{self.name}-{number}", "shared": "work"}.get(play.types, self.name)
        return Work(
            runtime_s=true_s * (play.overrun if overruns else 1.0),
            declared_s=_declared_s(declared, true_s, number),
            operation_type=kind,
            end=end,  # type: ignore[arg-type]  # a play that says otherwise ends in `_end`
            key=self._key or (f"k{number % play.keys}" if play.keys else ""),
            insight=number % play.insights,
            priority=play.priority,
            attempts=play.attempts,
            reports=play.reports,
        )

    def _controls(self, second: int, view: View) -> Iterator[Move]:
        match self.play.controls:
            case "hold":
                yield from (Control("release", one) for one in self._held)
                self._held = [*view.outstanding[second % 2 :: _THIRD]]
                yield from (Control("hold", one) for one in self._held)
            case "cancel":
                yield from (Control("cancel", one) for one in view.outstanding[::_THIRD])
            case "reprioritise":
                newest = view.outstanding[-_FOURTH:]
                yield from (Control("reprioritise", one, 1 + second % 9) for one in newest)
            case "pause" if self._key is None:
                yield Pause(bool(second % 2))


def _declared_s(declared: str, runtime_s: float, number: int) -> float | None:
    if declared == "mixed":
        declared = _MIXED[number % len(_MIXED)]
    if declared == "none":
        return None
    return _ABSURD_S if declared == "absurd" else float(declared) * runtime_s
