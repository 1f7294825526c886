"""What probes are answered with."""

from collections.abc import Mapping
from typing import Literal

from pop_stream.shapes.base import ResponseModel


class Health(ResponseModel, frozen=True):
    """The process is alive."""

    status: Literal["ok"]


class Readiness(ResponseModel, frozen=True):
    """Every part the API depends on answers."""

    status: Literal["ready"]
    parts: Mapping[str, Literal["ok", "away"]]
