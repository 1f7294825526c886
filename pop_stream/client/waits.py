"""Calls that end waits: give signals, approve and reject operations."""

from typing import Any

from pop_stream.api_models.waits import DecisionResult, SignalList, SignalView
from pop_stream.client.content import to_json
from pop_stream.client.transport import Calls


class SignalCalls(Calls):
    """Signals."""

    async def give(
        self,
        name: str,
        payload: Any = None,  # noqa: ANN401  # whatever JSON can say
        *,
        customer_id: str | None = None,
        keep_s: float | None = None,
    ) -> SignalView:
        """Give a signal; what waits for it goes on.

        Args:
            name: Of the signal.
            payload: Becomes the result of operations that wait for it; at most 64 KiB as JSON.
            customer_id: Whose waits it ends; a customer's own if None.
            keep_s: So long it also ends waits that begin after it; a day if None.

        Raises:
            NotFoundError: If the caller does not speak for the customer.
            ApiRefusedError: If it is not sound; `issues` say why.
            ApiError: If there is no answer.
        """
        known = {"customer_id": customer_id, "payload": payload, "keep_s": keep_s}
        content = {key: one for key, one in known.items() if one is not None}
        return await self._transport.post(
            SignalView, "signals", name, body=to_json(content), is_repeatable=True
        )

    async def list(self, *, customer_id: str | None = None) -> list[SignalView]:
        """Signals that are kept, by name, at most a thousand.

        Raises:
            ApiError: If there is no answer.
        """
        query = [("customer_id", customer_id)] if customer_id is not None else []
        return (await self._transport.read(SignalList, "signals", query=query)).signals


class OperationCalls(Calls):
    """Operations that wait for a person."""

    async def approve(
        self, agenda_id: str, operation: str, *, reason: str = ""
    ) -> DecisionResult:
        """Let the operation succeed.

        Raises:
            NotFoundError: If there is none.
            ApiConflictError: If it does not wait for a person.
            ApiError: If there is no answer.
        """
        return await self._decide("approve", agenda_id, operation, reason)

    async def reject(
        self, agenda_id: str, operation: str, *, reason: str = ""
    ) -> DecisionResult:
        """Let the operation fail, for good.

        Raises:
            NotFoundError: If there is none.
            ApiConflictError: If it does not wait for a person.
            ApiError: If there is no answer.
        """
        return await self._decide("reject", agenda_id, operation, reason)

    async def _decide(
        self, verdict: str, agenda_id: str, operation: str, reason: str
    ) -> DecisionResult:
        return await self._transport.post(
            DecisionResult,
            "agendas",
            agenda_id,
            "operations",
            operation,
            verdict,
            body=to_json({"reason": reason}),
            is_repeatable=False,
        )
