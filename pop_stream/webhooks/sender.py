"""The running part: claims webhooks from the outbox, signs and sends them, and tries again."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from types import TracebackType
from typing import Final, Protocol, Self

import aiohttp
import structlog

from pop_stream.background import BackgroundTaskError
from pop_stream.clock import wait_until_set
from pop_stream.kafka.publisher import publish_writable
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import encode
from pop_stream.policy.lifecycle.webhooks import (
    BACKOFF,
    ID_HEADER,
    SIGNATURE_HEADER,
    WebhookExhausted,
    media_type_of,
    signature,
    webhook_secret,
)
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.settings import Settings
from pop_stream.ssrf_guard import (
    ForbiddenAddressError,
    SsrfGuard,
    guarded_connector,
    refusal_behind,
)
from pop_stream.telemetry.process import DEAD_LETTERS

MAX_CONCURRENT: Final = 256
"""Webhooks in flight at a time in one process: some thirty customers whose servers hang leave
the others room."""

RESPONSE_TIMEOUT: Final = timedelta(seconds=10)
"""From the look-up of the name to the last byte of the answer's head."""

POLL_EVERY: Final = timedelta(seconds=0.5)

_UNAVAILABLE_PAUSE_S: Final = 5.0
_REASON_LENGTH: Final = 500

_log = structlog.get_logger()


class PendingWebhook(Protocol):
    """One webhook of the outbox, claimed for a try."""

    @property
    def number(self) -> int:
        """Its place in the outbox."""
        ...

    @property
    def webhook_id(self) -> str:
        """By it a receiver knows repeats."""
        ...

    @property
    def agenda_id(self) -> str:
        """Whose end it reports."""
        ...

    @property
    def customer_id(self) -> str:
        """Whose secret signs it."""
        ...

    @property
    def url(self) -> str:
        """Where it goes."""
        ...

    @property
    def body(self) -> str:
        """What is sent."""
        ...

    @property
    def tries(self) -> int:
        """With the one to be made now."""
        ...


class WebhookOutbox(Protocol):
    """Where webhooks wait; every method raises UnavailableError while it is away."""

    async def claim(self, most: int, in_flight: Mapping[str, int]) -> Sequence[PendingWebhook]:
        """Webhooks to try now, hidden from other senders for a while.

        Args:
            most: So many at most.
            in_flight: By customer, how many the caller is trying already.
        """
        ...

    async def mark_delivered(self, number: int) -> None:
        """Take one that was received out of the outbox."""
        ...

    async def postpone(self, number: int, pause: timedelta, reason: str) -> None:
        """Have one tried again after a pause."""
        ...

    async def mark_exhausted(self, number: int, reason: str) -> None:
        """Try one no more."""
        ...


class WebhookDeliveryError(Exception):
    """A try failed.

    Attributes:
        is_final: Whether no other try can help.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason[:_REASON_LENGTH])
        self.is_final = is_final


class WebhookSender:
    """Sends until stopped; use as a context manager.

    Received is what is answered with a 2xx. 410 says that nobody is there any more, and is
    final; redirects are not followed.

    Args:
        settings: Keys to sign with, networks that are allowed, how many tries. Without a key
            nothing is sent.
        outbox: Where webhooks wait.
        publisher: For the dead letters.
        clock: For the instants in signatures.
    """

    def __init__(
        self, settings: Settings, outbox: WebhookOutbox, publisher: Publisher, clock: Clock
    ) -> None:
        self._keys = [one.get_secret_value().encode() for one in settings.webhook_keys]
        self._most_tries = settings.webhook_tries
        self._guard = SsrfGuard(settings.webhook_networks)
        self._topic = Topics(settings.topic_prefix).dead_webhooks
        self._outbox = outbox
        self._publisher = publisher
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._in_flight: dict[asyncio.Task[None], str] = {}
        self._freed = asyncio.Event()
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=guarded_connector(self._guard, limit=MAX_CONCURRENT),
            timeout=aiohttp.ClientTimeout(total=RESPONSE_TIMEOUT.total_seconds()),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in [*self._in_flight]:
            task.cancel()
        await self.wait_until_idle()
        if self._session is not None:
            await self._session.close()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver what is owed, until `stop`; then what is in flight is waited for.

        Raises:
            BackgroundTaskError: If a try ended otherwise than tries may.
        """
        while not stop.is_set():
            self._freed.clear()
            try:
                await self.start_due()
            except UnavailableError as error:
                _log.info("webhooks.postponed", reason=str(error))
                await wait_until_set(stop, _UNAVAILABLE_PAUSE_S)
            else:
                await wait_until_set(self._freed, POLL_EVERY.total_seconds())
        await self.wait_until_idle()

    async def start_due(self) -> int:
        """Begin to try what is due, beside what is in flight; how many that were.

        Raises:
            UnavailableError: If the outbox is away.
            BackgroundTaskError: If a try before ended otherwise than tries may.
        """
        if self._failure is not None:
            name = "a webhook's try"
            raise BackgroundTaskError(name, repr(self._failure)) from self._failure
        room = MAX_CONCURRENT - len(self._in_flight)
        if room <= 0 or not self._keys:  # no receiver could check who had sent it
            return 0
        pending = await self._outbox.claim(room, Counter(self._in_flight.values()))
        for one in pending:
            task = asyncio.create_task(self._try(one))
            self._in_flight[task] = one.customer_id
            task.add_done_callback(self._end)
        return len(pending)

    async def wait_until_idle(self) -> None:
        """Wait until nothing is in flight."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._in_flight[task]
        if not task.cancelled():
            self._failure = task.exception() or self._failure
        self._freed.set()

    async def _try(self, one: PendingWebhook) -> None:
        try:
            await self._deliver(one)
        except UnavailableError as error:
            # It comes back by itself, and is sent again even if it was received.
            _log.info("webhook.outcome_unknown", webhook_id=one.webhook_id, reason=str(error))

    async def _deliver(self, one: PendingWebhook) -> None:
        facts = {"webhook_id": one.webhook_id, "tries": one.tries}
        try:
            await self._send(one)
        except WebhookDeliveryError as error:
            reason = str(error)
            if error.is_final or one.tries >= self._most_tries:
                await self._dead_letter(one, reason)
                _log.warning("webhook.exhausted", **facts, reason=reason)
            else:
                pause_s = BACKOFF.pause_s(one.tries, seed=one.webhook_id)
                await self._outbox.postpone(one.number, timedelta(seconds=pause_s), reason)
                _log.info("webhook.postponed", **facts, reason=reason, pause_s=pause_s)
        else:
            await self._outbox.mark_delivered(one.number)
            _log.info("webhook.delivered", **facts)

    async def _send(self, one: PendingWebhook) -> None:
        assert self._session is not None  # noqa: S101  the context is entered
        body = one.body.encode()
        secrets = [webhook_secret(one.customer_id, key) for key in self._keys]
        headers = {
            "Content-Type": media_type_of(one.body),
            "User-Agent": "pop-stream",
            ID_HEADER: one.webhook_id,
            SIGNATURE_HEADER: signature(body, self._clock.now(), secrets),
        }
        try:
            self._guard.check_url(one.url)
            async with self._session.post(
                one.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                status = response.status
        except ForbiddenAddressError as error:
            raise WebhookDeliveryError(str(error), is_final=True) from None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            if cause := refusal_behind(error):
                raise WebhookDeliveryError(str(cause), is_final=True) from None
            msg = f"{type(error).__name__}: {error}"
            raise WebhookDeliveryError(msg) from None
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            is_final = status == HTTPStatus.GONE
            msg = f"answered with {status}"
            raise WebhookDeliveryError(msg, is_final=is_final)

    async def _dead_letter(self, one: PendingWebhook, reason: str) -> None:
        DEAD_LETTERS.labels("webhooks").inc()
        letter = WebhookExhausted(
            webhook_id=one.webhook_id,
            agenda_id=one.agenda_id,
            customer_id=one.customer_id,
            url=one.url,
            tries=one.tries,
            reason=reason,
            at=self._clock.now(),
            body=one.body,
        )
        # Published before it is marked: a crash in between repeats the dead letter.
        record = Record(self._topic, one.customer_id.encode(), encode(letter))
        await publish_writable(self._publisher, [record])
        await self._outbox.mark_exhausted(one.number, reason)
