"""The built-in handler `split`: submits the children of an agenda, through the API.

Children have stable ids, so a second attempt submits the same again and the API accepts each
once. How far an attempt came is noted on the operation, and the next one goes on from there.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pop_stream.extensions import period_resolvers
from pop_stream.model.agenda import encode_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.policy.splitting.parent import ParentAgenda, SplitJob
from pop_stream.puller.handlers.errors import FinalError, RetryableError, read_payload
from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.reporting.messages import excerpt
from pop_stream.settings import Settings

if TYPE_CHECKING:
    import aiohttp

    from pop_stream.policy.splitting.periods import PeriodResolvers

BATCH_CHILDREN: Final = 500
BATCH_BYTES: Final = 1024 * 1024
"""Of one request; a batch ends with the child that reaches either."""

SUBMITTED: Final = "split.submitted"
"""The code of the diagnostic that says how far an attempt came."""

_YIELD_EVERY: Final = 20
_REQUEST_S: Final = 30.0
_GIVE_UP_S: Final = 600.0
"""How long the API may be away; then the attempt fails, and the next one goes on."""

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0
_SHOWN_BYTES: Final = 300
_LATER: Final = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS.value, HTTPStatus.SERVICE_UNAVAILABLE.value}
)

_Child = tuple[int, bytes]


class _Result(msgspec.Struct):
    index: int
    status: int
    issues: tuple[dict[str, Any], ...] = ()


class _Answer(msgspec.Struct):
    results: tuple[_Result, ...] = ()
    detail: str = ""
    title: str = ""


_ANSWER: Final = msgspec.json.Decoder(_Answer)


class _PausedError(Exception):
    """The API wants less, or is away: when to ask again, and why in words."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class SplitHandler:
    """Submits children in batches, as fast as the API takes them.

    Children belong to the agenda's own customer, whatever their template says, to its link, and
    to the link that its id names if it has none. A child is not divided again.

    Args:
        settings: Where the API is, and what token it wants: the agendas' customer's, or an
            operator's, with the role `submit`.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = settings.api_url.rstrip("/")
        token = settings.api_token
        self._headers: Mapping[str, str] = (
            {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}
        )
        self._resolvers: PeriodResolvers | None = None
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __call__(self, operation: OperationCall) -> Mapping[str, Any]:
        """Submit the children of the payload; see `SplitJob`.

        Returns:
            `{children, link_id}`.

        Raises:
            FinalError: If the payload cannot be divided, or the API refuses a child.
            RetryableError: If the API is away for long, or does not know the token.
        """
        if operation.parent_id is not None:
            msg = (
                f"{operation.agenda_id} is a child of {operation.parent_id} and is not divided "
                "again; divide the parent more finely"
            )
            raise FinalError(msg)
        job = read_payload(SplitJob, operation.payload)
        parent = ParentAgenda(
            id=operation.agenda_id,
            customer_id=operation.customer_id,
            link_id=operation.link_id,
        )
        self._resolvers = self._resolvers or period_resolvers()
        try:
            found = job.cut(self._resolvers)
            start = min(_submitted_before(operation), found.count)
            children = _Children(job, parent, enumerate(found.payloads(start), start + 1))
            while batch := await children.batch():
                await self._submit(batch, operation)
                await _report(operation, batch[-1][0], found.count)
        except SubmissionError as error:
            raise FinalError(str(error)) from None
        return {"children": found.count, "link_id": parent.children_link}

    async def _submit(self, batch: Sequence[_Child], operation: OperationCall) -> None:
        """Submit a batch until all of it is accepted."""
        pending, pause_s = list(batch), _FIRST_PAUSE_S
        since = monotonic()
        while pending:
            try:
                left = await self._post(pending, operation)
            except _PausedError as paused:
                if paused.after_s is None and monotonic() - since > _GIVE_UP_S:
                    raise RetryableError(str(paused)) from None
                await asyncio.sleep(paused.after_s or pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            if len(left) < len(pending):
                pause_s, since = _FIRST_PAUSE_S, monotonic()
            if pending := left:
                await asyncio.sleep(pause_s)

    async def _post(self, pending: Sequence[_Child], operation: OperationCall) -> list[_Child]:
        """Send the children; those that are to be sent again."""
        import aiohttp  # noqa: PLC0415  # a fifth of the start of a puller, which may not need it

        if self._session is None:
            within = aiohttp.ClientTimeout(total=_REQUEST_S)
            self._session = aiohttp.ClientSession(timeout=within, headers=self._headers)
        headers = {"Content-Type": "application/json"}
        if operation.trace is not None:
            headers |= operation.trace.headers
        body = b"[" + b",".join(child for _, child in pending) + b"]"
        url = f"{self._url}/v1/agendas"
        try:
            async with self._session.post(url, data=body, headers=headers) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            msg = f"the API at {self._url} does not answer ({type(error).__name__})"
            raise _PausedError(msg) from error
        return _left(pending, response.status, response.headers, content)


def _left(
    pending: Sequence[_Child], status: int, headers: Mapping[str, str], content: bytes
) -> list[_Child]:
    """What is to be sent again after an answer.

    Raises:
        _PausedError: If all of it is, later.
        FinalError: If a child was refused for good.
        RetryableError: If an operator has to do something first.
    """
    try:
        answer = _ANSWER.decode(content)
    except msgspec.DecodeError:
        answer = _Answer(detail=excerpt(content, most_bytes=_SHOWN_BYTES)[0])
    for one in answer.results:
        if one.issues and one.status not in _LATER:
            issue = "; ".join(f"{i.get('field')}: {i.get('message')}" for i in one.issues[:3])
            msg = f"child {pending[one.index][0]} is refused with {one.status}: {issue}"
            raise FinalError(msg)
    said = f"the API answers {status}: {answer.detail or answer.title}"
    if status == HTTPStatus.ACCEPTED:
        return [pending[one.index] for one in answer.results if one.status in _LATER]
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise _PausedError(said, _retry_after_s(headers))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise _PausedError(said)
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        remedy = "a key with the role `submit`, of the agendas' customer or of an operator"
        said = f"{said}; set POP_API_TOKEN of pullers to {remedy}"
        raise RetryableError(said)
    raise FinalError(said)


def _retry_after_s(headers: Mapping[str, str]) -> float:
    try:
        return min(60.0, max(0.1, float(headers.get("Retry-After", "1"))))
    except ValueError:
        return 1.0


def _submitted_before(operation: OperationCall) -> int:
    """How many children earlier attempts know to be submitted, without a gap."""
    if operation.prior is None:
        return 0
    noted = [
        one.detail["submitted"]
        for one in operation.prior.diagnostics
        if one.code == SUBMITTED and isinstance(one.detail, dict)
    ]
    return max((one for one in noted if isinstance(one, int)), default=0)


async def _report(operation: OperationCall, submitted: int, total: int) -> None:
    message = f"{submitted:,} of {total:,} children submitted"
    operation.note(message, code=SUBMITTED, detail={"submitted": submitted})
    await operation.report(100 * submitted / total, message)


class _Children:
    """Makes children, a batch at a time, and lets others run meanwhile."""

    def __init__(
        self, job: SplitJob, parent: ParentAgenda, parts: Iterator[tuple[int, dict[str, Any]]]
    ) -> None:
        self._job = job
        self._template = job.agenda_template()
        self._parent = parent
        self._parts = parts

    async def batch(self) -> list[_Child]:
        """The next ones; none if there are no more.

        Raises:
            SubmissionError: If one is no sound agenda.
        """
        made: list[_Child] = []
        size = 0
        for part in self._parts:
            child = encode_agenda(self._job.numbered(self._template, self._parent, part))
            made.append((part[0], child))
            size += len(child)
            if len(made) % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            if len(made) >= BATCH_CHILDREN or size >= BATCH_BYTES:
                break
        return made
