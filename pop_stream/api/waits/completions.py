"""Operations are completed from outside, by tokens; and pullers get these."""

from datetime import timedelta
from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from aiohttp import web

from pop_stream.api.http import body
from pop_stream.api.http.access import principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.errors import InvalidError
from pop_stream.api_models.completions import (
    CompletionRequest,
    CompletionResult,
    CompletionToken,
    CompletionTokenRequest,
)
from pop_stream.model.errors import (
    CompletionError,
    CompletionLateError,
    Issue,
    NotFoundError,
    UnservedError,
)
from pop_stream.model.identity import Principal, Role, require_access
from pop_stream.model.ids import InsightId
from pop_stream.model.signal import MAX_SIGNAL_BYTES, OperationCompletion
from pop_stream.policy.completion_token import (
    MAX_COMPLETION_TOKEN_LENGTH,
    CompletionClaims,
    CompletionTokens,
    completion_digest,
    is_same_completion,
    refusal_of,
)
from pop_stream.policy.lease_token import LeaseTokens
from pop_stream.ports.clock import Clock
from pop_stream.ports.completions import CompletionStore
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.summaries import SummaryReader
from pop_stream.settings import Settings

MAX_RESULT_BYTES: Final = MAX_SIGNAL_BYTES
"""Largest result, as JSON."""

_MAX_BODY_BYTES: Final = 2 * MAX_RESULT_BYTES + MAX_COMPLETION_TOKEN_LENGTH
"""Of a request, whose sender is unknown until its token is read; escapes make it longer."""

_SHOWN: Final = 40
_ATTEMPT_FIELDS: Final = ("agenda_id", "insight_id", "attempt", "accepted_at")

_log = structlog.get_logger()


class CompletionEndpoints:
    """The handlers of completions and their tokens."""

    def __init__(
        self,
        *,
        completions: CompletionStore,
        summaries: SummaryReader,
        definitions: DefinitionSource,
        clock: Clock,
        body_reader: body.BodyReader,
        settings: Settings,
    ) -> None:
        self._completions = completions
        self._summaries = summaries
        self._definitions = definitions
        self._clock = clock
        self._body_reader = body_reader
        self._tokens = CompletionTokens(settings.lease_signing_keys)
        self._lease_tokens = LeaseTokens(settings.lease_signing_keys)

    async def post_token(self, request: web.Request) -> web.Response:
        """Make a token for an operation of an attempt that the caller may pull."""
        wanted = await self._body_reader.read_model(request, CompletionTokenRequest)
        claims = self._claims(wanted)
        self._expect_may_pull(claims.insight_id, principal_of(request))
        made = CompletionToken(token=self._tokens.sign(claims), expires_at=claims.expires_at)
        return json_response(made, status=HTTPStatus.OK)

    async def post(self, request: web.Request) -> web.Response:
        """Complete an operation; the token alone says which, and that its sender may."""
        wanted = await self._body_reader.read_model(
            request, CompletionRequest, largest=_MAX_BODY_BYTES
        )
        claims = self._tokens.read(wanted.token)
        if claims is None:
            remedy = "no completion token of this API; send the one that was handed over"
            raise InvalidError([Issue("token", wanted.token[:_SHOWN], remedy)])
        completion = self._completion(wanted, claims)
        known = await with_timeout(self._completions.find(claims.agenda_id, claims.operation))
        if known is None or known.token != completion.token:
            await self._expect_open(claims, wanted.token)
            known = await with_timeout(self._completions.decide(completion))
        answer = _answer(known, completion)
        _log.info(
            "operation.completed",
            agenda_id=claims.agenda_id,
            operation=claims.operation,
            outcome=answer.outcome,
        )
        return json_response(answer, status=HTTPStatus.ACCEPTED)

    def _claims(self, wanted: CompletionTokenRequest) -> CompletionClaims:
        """What the token is to say.

        Raises:
            InvalidError: If it is not said which attempt is meant, or by no lease token.
        """
        said: object = wanted
        if wanted.lease_token is not None:
            said = self._lease_tokens.read(wanted.lease_token)
            if said is None:
                remedy = "no lease token of this API; send the one that was pulled"
                raise InvalidError([Issue("lease_token", wanted.lease_token[:_SHOWN], remedy)])
        facts = {name: getattr(said, name) for name in _ATTEMPT_FIELDS}
        remedy = "say which attempt is meant, or send its lease_token"
        if missing := [Issue(name, "null", remedy) for name in facts if facts[name] is None]:
            raise InvalidError(missing)
        now = self._clock.now()
        return CompletionClaims(
            **facts,
            operation=wanted.operation,
            issued_at=now,
            expires_at=now + timedelta(seconds=wanted.within_s),
        )

    def _expect_may_pull(self, insight_id: str, principal: Principal) -> None:
        """Check that the caller may pull from the insight.

        Raises:
            NotFoundError: If it is others' alone, or there is none.
        """
        insight = self._definitions.current.insights.get(InsightId(insight_id))
        if insight is None:
            kind = "insight"
            raise NotFoundError(kind, insight_id)
        if not principal.is_operator:
            named = ("insight", insight_id)
            require_access(principal, Role.PULL, insight.ownership, named=named, changes=True)

    def _completion(
        self, wanted: CompletionRequest, claims: CompletionClaims
    ) -> OperationCompletion:
        """What is to be kept.

        Raises:
            InvalidError: If it has both a result and an error, or is too large.
        """
        result = b"" if wanted.result is None else msgspec.json.encode(wanted.result)
        if len(result) > MAX_RESULT_BYTES:
            remedy = f"at most {MAX_RESULT_BYTES:,} bytes; store it elsewhere, and name where"
            raise InvalidError([Issue("result", f"{len(result):,} bytes", remedy)])
        error = wanted.error
        if error is not None and result:
            raise InvalidError(
                [Issue("error", error.message[:_SHOWN], "or a result, not both")]
            )
        return OperationCompletion(
            agenda_id=claims.agenda_id,
            operation=claims.operation,
            token=completion_digest(wanted.token),
            attempt=claims.attempt,
            outcome="succeeded" if error is None else "failed",
            result=result,
            reason="" if error is None else error.message,
            is_retryable=error is not None and error.retryable,
            completed_at=self._clock.now(),
        )

    async def _expect_open(self, claims: CompletionClaims, token: str) -> None:
        """Check that the token still completes its operation.

        Raises:
            CompletionError: If it does not.
            UnservedError: If nothing is known of its agenda yet.
        """
        summary = await with_timeout(self._summaries.agenda(claims.agenda_id))
        match refusal_of(claims, token, summary, self._clock.now()):
            case None:
                return
            case ("late", why):
                raise CompletionLateError(why)
            case ("outdated", why):
                raise CompletionError(why)
            case (_, why):
                raise UnservedError(why)


def _answer(known: OperationCompletion | None, sent: OperationCompletion) -> CompletionResult:
    """What the sender of a completion is answered, by what is kept for its operation.

    Raises:
        CompletionError: If that is something else.
    """
    if known is None:
        msg = "its agenda has ended, and was removed"
        raise CompletionLateError(msg)
    if known.token != sent.token:
        msg = "the operation was handed over again, with another token"
        raise CompletionError(msg)
    if known.outcome == "timed_out":
        msg = f"it timed out at {known.completed_at.isoformat()}"
        raise CompletionLateError(msg)
    if not is_same_completion(known, sent):
        msg = f"it was used before, with another result ({known.outcome})"
        raise CompletionError(msg)
    return CompletionResult(
        operation=known.operation, outcome=known.outcome, completed_at=known.completed_at
    )
