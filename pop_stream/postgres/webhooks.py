"""The outbox of webhooks: enqueued as agendas end, claimed, delivered or exhausted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from pop_stream.model.agenda import CallbackFormat
from pop_stream.policy.lifecycle.webhooks import AgendaEnded, webhook_body
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

_SQL: Final = load_queries("webhooks")

MAX_IN_FLIGHT_PER_CUSTOMER: Final = 8
"""In flight at a time: a server that hangs holds up its own customer's webhooks only."""

VISIBILITY_TIMEOUT: Final = timedelta(minutes=1)
"""Hidden from others; longer than a try takes, so only a dead sender's come back by it."""


@dataclass(frozen=True, slots=True)
class DueWebhook:
    """One webhook to try now.

    Attributes:
        number: In the order in which agendas ended.
        tries: With the one to be made now.
    """

    number: int
    webhook_id: str
    agenda_id: str
    customer_id: str
    url: str
    body: str
    tries: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WebhookBacklog:
    """What is in the outbox.

    Attributes:
        oldest: When the oldest that waits was written.
    """

    waiting: int
    exhausted: int
    oldest: datetime | None


class PostgresWebhooks:
    """Several senders may share it; every method raises UnavailableError while it is away."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def claim(self, most: int, in_flight: Mapping[str, int]) -> list[DueWebhook]:
        """Webhooks to try now, at most `most`; nobody else is given them for a minute.

        Args:
            most: So many at most.
            in_flight: By customer, how many the caller is trying already.
        """
        busy = ([*in_flight], [*in_flight.values()])
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(
                _SQL["claim"], most, MAX_IN_FLIGHT_PER_CUSTOMER, VISIBILITY_TIMEOUT, *busy
            )
        return sorted((DueWebhook(**row) for row in rows), key=lambda one: one.number)

    async def mark_delivered(self, number: int) -> None:
        """Take a webhook that was received out of the outbox; its agenda's page shows it on."""
        async with acquire_connection(self._pool) as connection:
            await connection.execute(_SQL["move_delivered"], number)

    async def postpone(self, number: int, pause: timedelta, reason: str) -> None:
        """Have it tried again after a pause."""
        async with acquire_connection(self._pool) as connection:
            await connection.execute(_SQL["reschedule"], number, pause, reason)

    async def mark_exhausted(self, number: int, reason: str) -> None:
        """Try it no more; later ones of the same agenda may go."""
        async with acquire_connection(self._pool) as connection:
            await connection.execute(_SQL["mark_exhausted"], number, reason)

    async def oldest_waiting_at(self) -> datetime | None:
        """When the oldest that waits was enqueued; None if none waits."""
        async with acquire_connection(self._pool) as connection:
            at: datetime | None = await connection.fetchval(_SQL["oldest_waiting"])
        return at

    async def backlog(self) -> WebhookBacklog:
        """What waits and what is exhausted; reads all rows there are."""
        async with acquire_connection(self._pool) as connection:
            row = await connection.fetchrow(_SQL["backlog"])
        assert row is not None  # noqa: S101  a count has a row
        return WebhookBacklog(**row)


async def enqueue_webhooks(
    connection: "Connection", ended: Sequence[tuple[AgendaEnded, str, CallbackFormat]]
) -> None:
    """Enqueue webhooks, each with its address and format; skip repeats.

    In the caller's transaction.
    """
    if not ended:
        return
    rows = [
        (one.id, one.agenda_id, one.customer_id, url, webhook_body(one, sent_as))
        for one, url, sent_as in ended
    ]
    await connection.execute(_SQL["enqueue"], *zip(*rows, strict=True))
