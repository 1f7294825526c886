"""Composes ingest and relay, which share a process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from pop_stream.clock import WallClock
from pop_stream.composition.policies import admission_policies, operator_rankers
from pop_stream.composition.quotas import quota_gossip_of
from pop_stream.ingest.ingest import Ingest
from pop_stream.ingest.sender_authentication import SenderAuthenticator
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.relay.relay import Relay
from pop_stream.settings import Settings
from pop_stream.telemetry.process import part_registry
from pop_stream.telemetry.server import serve_metrics


@asynccontextmanager
async def open_sender_authenticator(
    settings: Settings, definitions: DefinitionFollower
) -> AsyncIterator[SenderAuthenticator | None]:
    """What authenticates the senders of records; None unless the settings ask for it."""
    if settings.ingest_auth == "off":
        yield None
        return
    from pop_stream.composition.auth import credentials
    from pop_stream.postgres.pool import open_pool

    async with open_pool(settings) as pool:
        yield SenderAuthenticator(
            credentials(settings, pool, definitions),
            signer=RecordSigner(settings.signing_keys),
            is_strict=settings.ingest_auth == "required",
        )


async def run_ingest(settings: Settings, stop: asyncio.Event) -> None:
    """Ingest and relay until `stop`; ends at once when either fails."""
    policies = admission_policies(settings)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        definitions = await enter(DefinitionFollower(settings, client_id="ingest"))
        publish = await enter(connections.publisher(settings, client_id="ingest"))
        relay_publish = await enter(connections.publisher(settings, client_id="relay"))
        sender_authenticator = await enter(open_sender_authenticator(settings, definitions))
        quota_gossip = await enter(quota_gossip_of(settings, publish, definitions, "ingest"))
        ingest = Ingest(
            settings,
            publish,
            definitions,
            WallClock(),
            sender_authenticator,
            quota_gossip,
            policies=policies,
            rankers=operator_rankers(),
        )
        relay = Relay(settings, relay_publish, definitions, WallClock())
        host, port = settings.metrics_host, settings.metrics_port
        await enter(
            serve_metrics(part_registry(), host, port, is_ready=lambda: not stop.is_set())
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ingest.run(stop))
            tasks.create_task(relay.run(stop))
