"""Clients that live as long as a block: an admin client, and a publisher with its producer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient

from pop_stream.kafka import clients
from pop_stream.kafka.hardening.producer_fence import MayWrite, fence_producer
from pop_stream.kafka.publisher import KafkaPublisher, ReconnectingPublisher
from pop_stream.settings import Settings


@asynccontextmanager
async def admin_client(
    settings: Settings, *, client_id: str = "admin"
) -> AsyncIterator[AIOKafkaAdminClient]:
    """A started admin client, closed at the end."""
    admin = clients.admin(settings, client_id=client_id)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


def publisher(
    settings: Settings, *, client_id: str, may: MayWrite | None = None
) -> ReconnectingPublisher:
    """A publisher with a producer of its own, started when first used; exit it to stop it.

    Args:
        settings: Where the cluster is.
        client_id: Shown in the broker's logs and metrics.
        may: Asked before each request; see `fence_producer`. None if all may always be written.
    """

    def make() -> KafkaPublisher:
        producer = clients.producer(settings, client_id=client_id)
        if may is not None:
            fence_producer(producer, may)
        return KafkaPublisher(producer, acknowledge_timeout=settings.publish_timeout)

    return ReconnectingPublisher(make)
