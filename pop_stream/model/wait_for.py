"""What an agenda waits for before it takes its turn: others' ends, signals, instants."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from pop_stream.model.ids import ID_LENGTH, ID_PATTERN, OWN_ID_LENGTH, OWN_ID_PATTERN
from pop_stream.model.json_types import InstantField

MAX_CONDITIONS: Final = 32
"""Most conditions of one agenda."""

ConditionKind = Literal["agenda", "link", "signal", "at"]
OnTimeout = Literal["fail", "go_on"]

_Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=ID_LENGTH)]
_OwnId = Annotated[str, StringConstraints(pattern=OWN_ID_PATTERN, max_length=OWN_ID_LENGTH)]


class Condition(BaseModel):
    """One thing to wait for; exactly one of `agenda`, `link`, `signal` and `at` is set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agenda: _OwnId | None = Field(
        default=None, description="Another agenda of the customer's has ended."
    )
    link: _Id | None = Field(
        default=None,
        description="The customer's agendas of this link id, of which there is one at least, "
        "have all ended.",
    )
    signal: _Id | None = Field(default=None, description="The customer gave this signal.")
    at: InstantField | None = Field(default=None, description="The instant has come.")
    ended: Literal["any", "succeeded"] = Field(
        default="any", description="With `agenda` and `link`: how."
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if [self.agenda, self.link, self.signal, self.at].count(None) != 3:  # noqa: PLR2004
            msg = "set exactly one of agenda, link, signal and at"
            raise ValueError(msg)
        if self.ended != "any" and self.agenda is None and self.link is None:
            msg = "`ended` says how an agenda or a link has ended; leave it out"
            raise ValueError(msg)
        return self

    @property
    def kind(self) -> ConditionKind:
        """Which of the four it is."""
        if self.agenda is not None:
            return "agenda"
        if self.link is not None:
            return "link"
        return "at" if self.signal is None else "signal"

    @property
    def key(self) -> str:
        """What it names, as text."""
        at = "" if self.at is None else self.at.isoformat()
        return self.agenda or self.link or self.signal or at


_NAMES: Final = ("agenda", "link", "signal", "at")


def without_unnamed(submission: Mapping[str, object]) -> dict[str, object]:
    """A submission without conditions whose name came to null once its tokens were filled in.

    The first occurrence of a schedule has none before it, so there is nothing to wait for. A
    condition without a name is left in, and is refused as in any other submission.
    """
    conditions = submission.get("wait_for")
    if not isinstance(conditions, list | tuple):
        return dict(submission)
    kept = [one for one in conditions if not _is_unnamed(one)]
    left = {**submission, "wait_for": kept}
    if kept or not conditions:
        return left
    return {name: one for name, one in left.items() if name not in {"wait_for", "on_timeout"}}


def _is_unnamed(condition: object) -> bool:
    if not isinstance(condition, Mapping):
        return False
    names = [name for name in _NAMES if name in condition]
    return bool(names) and all(condition[name] is None for name in names)
