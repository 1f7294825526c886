"""`--pool-weights a=2,b=1 --pool-minimums a=4`: what insights have of a trace's pool."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pop_stream.cli.errors import UsageError
from pop_stream.cli.weights import parse_weights


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """A pool of all insights of a trace.

    Attributes:
        weights: By insight; else 1.
        minimums: By insight, what is guaranteed; else 0.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    minimums: Mapping[str, int] = field(default_factory=dict)


def parse_pool_options(weights: str | None, minimums: str | None) -> PoolOptions:
    """What the options say; nothing of no text.

    Raises:
        UsageError: With the part that is wrong, and what to write.
    """
    weighed = parse_weights(weights, "--pool-weights", "insight")
    return PoolOptions({str(name): one for name, one in weighed.items()}, _minimums(minimums))


def _minimums(text: str | None) -> Mapping[str, int]:
    minimums: dict[str, int] = {}
    for part in filter(str.strip, (text or "").split(",")):
        name, _, number = part.strip().rpartition("=")
        if not name or not number.isdecimal() or name in minimums:
            msg = (
                f"--pool-minimums: {part!r} is no minimum; write insight=agendas, each insight "
                "once, with a whole number and commas between"
            )
            raise UsageError(msg)
        minimums[name] = int(number)
    return minimums
