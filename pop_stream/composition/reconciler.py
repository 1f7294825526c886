"""What the reconciler is made of, beside the rollup and for `doctor --ledger` alike."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from pop_stream.kafka import clients, connections
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.lag import KafkaLagProbe
from pop_stream.kafka.queries import KafkaQueueQueries
from pop_stream.kafka.topics import Topics
from pop_stream.ports.publisher import Publisher
from pop_stream.postgres.ledger import PostgresSummaryScan
from pop_stream.postgres.open_agendas import PostgresOpenAgendas
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.reconciler.comparison import LedgerComparison
from pop_stream.reconciler.evidence import read_evidence
from pop_stream.reconciler.progress import PartProgress, read_bounds
from pop_stream.reconciler.reconciler import LedgerAudit, Reconciler
from pop_stream.reconciler.repairs import LedgerRepairs
from pop_stream.relay.relay import translate
from pop_stream.settings import Settings

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool


@asynccontextmanager
async def open_reconciler(
    settings: Settings, pool: "Pool", publish: Publisher
) -> AsyncIterator[Reconciler]:
    """A reconciler with clients of its own, which are closed with it."""
    topics, ledger = Topics(settings.topic_prefix), PostgresSummaryScan(pool)
    async with (
        DefinitionFollower(settings, client_id="reconcile") as definitions,
        KafkaQueueQueries(settings, publish, definitions) as queries,
        connections.admin_client(settings, client_id="reconcile-admin") as admin,
        clients.consumer(settings, client_id="reconcile-lag", group_id=None) as offsets,
    ):
        probe = KafkaLagProbe(topics, admin, offsets)
        yield Reconciler(
            agendas=PostgresOpenAgendas(pool),
            ledger=ledger,
            comparison=partial(LedgerComparison, ledger, queries, definitions),
            progress=PartProgress(topics, ledger, probe, partial(read_bounds, settings)),
            repairs=LedgerRepairs(
                topics,
                bodies=ledger,
                summaries=PostgresSummaries(pool),
                publisher=publish,
                definitions=definitions,
                translate=translate,
            ),
            read_evidence=partial(read_evidence, settings),
        )


async def audit_ledger(settings: Settings, *, quiet: timedelta, repair: bool) -> LedgerAudit:
    """Audit the live system once, and repair what can be if that is wanted.

    Args:
        settings: Where Kafka and Postgres are.
        quiet: Agendas that changed within this time are left out.
        repair: Whether to repair.

    Raises:
        UnavailableError: If Postgres or Kafka is away, or the rollup does not keep up.
    """
    async with (
        open_pool(settings) as pool,
        connections.publisher(settings, client_id="ledger") as publish,
        open_reconciler(settings, pool, publish) as reconciler,
    ):
        return await reconciler.audit(quiet, repair=repair)
