"""What probes are answered with."""

from collections.abc import Mapping
from typing import Literal

from pop_stream.shapes.base import Model


class Health(Model, frozen=True):
    """The process is alive."""

    status: Literal["ok"]


class Readiness(Model, frozen=True):
    """Every part the API depends on answers."""

    status: Literal["ready"]
    parts: Mapping[str, Literal["ok", "away"]]
