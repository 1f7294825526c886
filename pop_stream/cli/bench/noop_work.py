"""The agendas of the throughput benchmarks: no-op operations, of a given size."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import shake_128
from typing import Any, Final

from pop_stream.cli.bench.handlers import NOOP
from pop_stream.cli.bench.load import PARAM

_PLACEHOLDERS_GROW: Final = 12
"""Characters that an id and a customer have more than what stands for them."""


@dataclass(frozen=True)
class NoopWorkload:
    """Makes agendas by number.

    Attributes:
        run: Begins all ids.
        insights: Taken in turn.
        customers: Taken in turn, after a round of insights.
        operations: Of each agenda; every one depends on the one before it.
        size: Bytes of each agenda, filled up in the first operation's payload; an agenda that
            is larger without it stays so.
        operation_type: Chooses the handler.
    """

    run: str
    insights: Sequence[str]
    customers: int = 1
    operations: int = 1
    size: int = 300
    operation_type: str = NOOP
    _templates: dict[str, str] = field(default_factory=dict, init=False)

    def agenda_id(self, number: int) -> str:
        """The id of the agenda with this number."""
        return f"{self.run}-{number}"

    def insight_id(self, number: int) -> str:
        """The insight of the agenda with this number."""
        return self.insights[number % len(self.insights)]

    def customer_id(self, number: int) -> str:
        """The customer of the agenda with this number."""
        return f"customer-{number // len(self.insights) % self.customers}"

    def body(self, number: int) -> bytes:
        """The agenda with this number, encoded."""
        insight_id = self.insight_id(number)
        template = self._templates.get(insight_id)
        if template is None:
            payload = "<payload>" if self._filling else None
            template = self._template(insight_id, payload=payload)
            self._templates[insight_id] = template
        agenda_id = self.agenda_id(number)
        text = template.replace("<id>", agenda_id, 1)
        text = text.replace("<customer>", self.customer_id(number), 1)
        if self._filling:
            # Different in each, and no more compressible than ids and numbers are.
            filling = shake_128(agenda_id.encode()).hexdigest(self._filling // 2)
            text = text.replace("<payload>", filling, 1)
        return text.encode()

    @cached_property
    def _filling(self) -> int:
        """Characters that are missing to the wanted size."""
        bare = len(self._template(self.insights[0], payload=""))
        return max(0, self.size - bare - _PLACEHOLDERS_GROW)

    def _template(self, insight_id: str, *, payload: str | None) -> str:
        operations: list[dict[str, Any]] = [
            {"name": f"o{number}", "type": self.operation_type}
            | ({"depends_on": [f"o{number - 1}"]} if number else {})
            for number in range(self.operations)
        ]
        body = {
            "id": "<id>",
            "customer_id": "<customer>",
            "params": {PARAM: insight_id},
            "operations": operations,
        }
        if payload is not None:
            operations[0]["payload"] = payload
        return json.dumps(body)
