"""Composes ingest, relay and timekeeper, which share a process."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from prometheus_client import CollectorRegistry

from pop_stream.clock import WallClock
from pop_stream.composition.policies import admission_policies, operator_rankers
from pop_stream.composition.quotas import quota_gossip_of
from pop_stream.ingest.ingest import Ingest
from pop_stream.ingest.sender_authentication import SenderAuthenticator
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.state_rows import StateRows
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import decode_rule_state
from pop_stream.policy.ingress.admission import Admission
from pop_stream.policy.ingress.policies import AdmissionPolicy
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.relay.relay import Relay
from pop_stream.settings import Settings
from pop_stream.telemetry.process import part_registry
from pop_stream.telemetry.server import serve_metrics
from pop_stream.timekeeper.rule_counts import RuleMetrics
from pop_stream.timekeeper.rule_runner import RulePorts, RuleRunner
from pop_stream.timekeeper.timekeeper import Timekeeper


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


@asynccontextmanager
async def open_timekeeper(
    settings: Settings,
    definitions: DefinitionFollower,
    policies: Sequence[AdmissionPolicy],
    registry: CollectorRegistry,
) -> AsyncIterator[tuple[Timekeeper, RuleRunner]]:
    """What fires schedules and rules, with a publisher of its own."""
    admission = Admission(
        definitions.current,
        max_agenda_bytes=settings.max_agenda_bytes,
        defined_customers_only=settings.defined_customers_only,
        policies=policies,
        rankers=operator_rankers(),
    )
    topic = Topics(settings.topic_prefix).rule_states
    async with (
        connections.publisher(settings, client_id="timekeeper") as publisher,
        StateRows(settings, topic, decode_rule_state, client_id="rule-states") as states,
    ):
        timekeeper = Timekeeper(settings, publisher, definitions, WallClock(), admission)
        rules = RuleRunner(
            RulePorts(
                settings=settings,
                publisher=publisher,
                definitions=definitions,
                clock=WallClock(),
                admission=admission,
                states=states,
                metrics=RuleMetrics(registry),
            )
        )
        yield timekeeper, rules


async def run_ingest(settings: Settings, stop: asyncio.Event) -> None:
    """Ingest, relay and keep time until `stop`; ends at once when one of them fails."""
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
        registry = part_registry()
        timekeeper, rules = await enter(
            open_timekeeper(settings, definitions, policies, registry)
        )
        host, port = settings.metrics_host, settings.metrics_port
        await enter(serve_metrics(registry, host, port, is_ready=lambda: not stop.is_set()))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ingest.run(stop))
            tasks.create_task(relay.run(stop))
            tasks.create_task(timekeeper.run(stop))
            tasks.create_task(rules.run(stop))
