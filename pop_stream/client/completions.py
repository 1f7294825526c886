"""Calls that complete operations from outside, and get the tokens for that."""

from typing import Any

from pop_stream.api_models.completions import CompletionResult, CompletionToken
from pop_stream.client.content import to_json
from pop_stream.client.transport import Calls


class CompletionCalls(Calls):
    """Operations that were handed over; to complete one, its token is enough, and no key."""

    async def succeed(
        self,
        token: str,
        result: Any = None,  # noqa: ANN401  # whatever JSON can say
    ) -> CompletionResult:
        """Complete an operation; the same once more is answered with the same.

        Args:
            token: As it was handed over.
            result: Of the operation; at most 64 KiB as JSON.

        Raises:
            ApiConflictError: If it was used with another result, or the operation has gone
                another way.
            ApiRefusedError: If its time is over (410), or it is none.
            ApiError: If there is no answer.
        """
        return await self._complete({"token": token, "result": result})

    async def fail(
        self, token: str, message: str, *, retryable: bool = True
    ) -> CompletionResult:
        """Let an operation fail; raises as `succeed` does.

        Args:
            token: As it was handed over.
            message: Why.
            retryable: Whether another attempt may help.
        """
        error = {"message": message, "retryable": retryable}
        return await self._complete({"token": token, "error": error})

    async def token(
        self, lease_token: str, operation: str, *, within_s: float | None = None
    ) -> CompletionToken:
        """A token by which an operation of an attempt that was pulled can be completed.

        Args:
            lease_token: As it came with the agenda.
            operation: Its name.
            within_s: Seconds until its time is over; an hour if None.

        Raises:
            ApiRefusedError: If the attempt is none of the caller's.
            ApiError: If there is no answer.
        """
        wanted: dict[str, Any] = {"lease_token": lease_token, "operation": operation}
        if within_s is not None:
            wanted["within_s"] = within_s
        return await self._transport.post(
            CompletionToken, "completion-tokens", body=to_json(wanted), is_repeatable=True
        )

    async def _complete(self, content: dict[str, Any]) -> CompletionResult:
        return await self._transport.post(
            CompletionResult, "completions", body=to_json(content), is_repeatable=True
        )
