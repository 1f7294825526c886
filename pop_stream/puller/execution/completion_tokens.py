"""Asks the API for the tokens by which operations are completed from outside."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from pop_stream.puller.execution.api_session import ApiSession, ApiUnusableError
from pop_stream.puller.handlers.errors import RetryableError
from pop_stream.puller.handlers.invocation import AttemptContext
from pop_stream.settings import Settings

_REMEDIES: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: ": set POP_API_TOKEN to a key with the role `pull`",
    HTTPStatus.FORBIDDEN: ": give the key in POP_API_TOKEN the role `pull`",
    HTTPStatus.NOT_FOUND: ": the key in POP_API_TOKEN may not pull from the insight",
    HTTPStatus.UNPROCESSABLE_ENTITY: ": within_s goes from 1 to 31,622,400",
}


class CompletionTokenIssuer:
    """One per puller, which has no key to sign with; its connections are closed with it.

    Args:
        settings: Where the API is, and what token of its own the puller shows.
    """

    def __init__(self, settings: Settings) -> None:
        self._api = ApiSession(settings, _REMEDIES)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def issue(self, attempt: AttemptContext, operation: str, within_s: float) -> str:
        """A token for an operation of a running attempt, another one each time.

        Raises:
            RetryableError: If the API does not answer with one.
        """
        wanted = {
            "agenda_id": attempt.agenda_id,
            "insight_id": attempt.insight_id,
            "attempt": attempt.attempt,
            "accepted_at": attempt.accepted_at.isoformat(),
            "operation": operation,
            "within_s": within_s,
        }
        try:
            answer = await self._api.request(
                "POST", "/v1/completion-tokens", body=json.dumps(wanted).encode()
            )
            return str(json.loads(answer)["token"])
        except (ApiUnusableError, ValueError, KeyError) as error:
            msg = f"no completion token could be had: {error}"
            raise RetryableError(msg) from error
