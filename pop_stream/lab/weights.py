"""`--weights acme=2,globex=0.5`, as more than one command has it."""

from collections.abc import Mapping
from typing import Final

from pop_stream.model.ids import CustomerId
from pop_stream.operations.errors import UsageError

MIN_WEIGHT: Final = 1e-3
MAX_WEIGHT: Final = 1e6
"""As definitions of customers bound them."""


def parse_weights(
    text: str | None, option: str = "--weights", whose: str = "customer"
) -> Mapping[CustomerId, float]:
    """Weights by customer, or by who else has one; none of no text.

    Raises:
        UsageError: With what is wrong in which part, and what to write.
    """
    weights: dict[CustomerId, float] = {}
    for part in filter(str.strip, (text or "").split(",")):
        name, _, number = part.rpartition("=")
        customer = CustomerId(name.strip())
        if customer in weights:
            msg = f"{option}: {part!r} names {customer!r} a second time; give it one weight"
            raise UsageError(msg)
        if not customer and "=" in part:
            msg = f"{option}: {part!r} is no weight; name the {whose}, as acme=2"
            raise UsageError(msg)
        if not customer or (weight := _number(number)) is None:
            msg = (
                f"{option}: {part!r} is no weight; write {whose}=weight, with a weight from "
                f"{MIN_WEIGHT:g} to {MAX_WEIGHT:.0f} and commas between"
            )
            raise UsageError(msg)
        weights[customer] = weight
    return weights


def _number(text: str) -> float | None:
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if MIN_WEIGHT <= weight <= MAX_WEIGHT else None
