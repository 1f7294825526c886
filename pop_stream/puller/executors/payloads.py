"""What payloads of executors have in common, and what an operator lets them have.

Quantities of resources are written as Kubernetes writes them.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import JsonValue, StringConstraints

from pop_stream.puller.executors.port import RunIdentity
from pop_stream.puller.handlers.errors import FinalError

_FACTORS: Final[Mapping[str, Decimal]] = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** n for n, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** n for n, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([mkMGTPE]|[KMGTPE]i)?")

Quantity = Annotated[
    str, StringConstraints(pattern=r"^[0-9]{1,18}(\.[0-9]{1,9})?([mkMGTPE]|[KMGTPE]i)?$")
]
"""`500m`, `2`, `1.5`, `512Mi`, `4G`."""

ResourceName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_./]{0,200}[A-Za-z0-9])?$")
]

Resources = dict[ResourceName, Quantity]
"""By name: `cpu`, `memory`, or others of the executor's such as `nvidia.com/gpu`."""

EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,200}$")]

LEAST: Final[Mapping[str, str]] = {"cpu": "1m", "memory": "1Mi"}
"""What a run is given at least of these: executors take nothing for no limit at all."""

LEAST_SIZE: Final = 0.001
"""Nothing that runs is free."""

WORKER: Final[Mapping[str, str]] = {"cpu": "1", "memory": "4Gi"}
"""What counts as one worker unless the operator says otherwise."""


def amount(quantity: str) -> float:
    """A quantity as a number: of processors, or bytes.

    Raises:
        ValueError: If it is none.
    """
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        msg = f"{quantity!r}: write a quantity, such as 500m, 2 or 512Mi"
        raise ValueError(msg)
    return float(Decimal(found[1]) * _FACTORS[found[2] or ""])


def size_of(resources: Mapping[str, str], worker: Mapping[str, str]) -> float:
    """How many workers resources are worth, by the one of which they take most.

    What the worker does not name counts nothing.
    """
    shares = [
        amount(quantity) / amount(worker[name])
        for name, quantity in resources.items()
        if name in worker
    ]
    return max([LEAST_SIZE, *shares])


def check_within(field: str, asked: Mapping[str, str], most: Mapping[str, str]) -> None:
    """Check that no more is asked for than the operator lets one run have, and not nothing.

    Raises:
        FinalError: Naming the first that is more or less, or that the operator does not name.
    """
    for name, quantity in asked.items():
        if name not in most:
            known = ", ".join(sorted(most)) or "none"
            msg = (
                f"payload.{field}.{name} = {quantity!r}: is not to be had here; known: {known}"
            )
            raise FinalError(msg)
        if amount(quantity) > amount(most[name]):
            msg = f"payload.{field}.{name} = {quantity!r}: a run has at most {most[name]} here"
            raise FinalError(msg)
        least = LEAST.get(name, "0")
        if amount(quantity) < amount(least):
            msg = f"payload.{field}.{name} = {quantity!r}: a run has at least {least}"
            raise FinalError(msg)


def check_image(image: str, allowed: Sequence[str]) -> None:
    """Check that an image may be run.

    Raises:
        FinalError: If it matches none of the operator's patterns.
    """
    if not any(fnmatchcase(image, one) for one in allowed):
        known = ", ".join(allowed) or "none"
        msg = f"payload.image = {image!r}: may not be run here; allowed: {known}"
        raise FinalError(msg)


def check_variables(names: Iterable[str], allowed: Sequence[str]) -> None:
    """Check that a payload may set variables of these names.

    Raises:
        FinalError: Naming the first that matches none of the operator's patterns.
    """
    for name in names:
        if not any(fnmatchcase(name, one) for one in allowed):
            known = ", ".join(allowed) or "none"
            msg = f"payload.env.{name}: may not be set here; allowed: {known}"
            raise FinalError(msg)


def check_seconds(asked: int | None, most: int) -> int:
    """How long a run may take: what a payload asks for, else the most.

    Raises:
        FinalError: If it asks for more.
    """
    if (asked or 0) > most:
        msg = f"payload.max_seconds = {asked}: at most {most} here"
        raise FinalError(msg)
    return asked or most


def environment(
    identity: RunIdentity, own: Mapping[str, str], given: JsonValue
) -> Mapping[str, str]:
    """A run's variables: the payload's own, whose run it is, and its input as JSON."""
    handed = {} if given is None else {"AGENDA_INPUT": json.dumps(given)}
    return {**own, **identity.environment, **handed}
