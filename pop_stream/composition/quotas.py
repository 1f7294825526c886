"""Quotas of a process that accepts submissions: its ledger, shared with those of all others."""

import secrets
import time
from datetime import timedelta
from typing import Final

from pop_stream.clock import WallClock
from pop_stream.kafka.quota_gossip import QuotaGossip
from pop_stream.model.ids import CustomerId
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher
from pop_stream.settings import Settings

_GOSSIP_SINCE: Final = timedelta(minutes=2)
"""So far back a new ledger reads; every writer repeats what it counts within ten seconds."""


def quota_gossip(
    settings: Settings, publish: Publisher, definitions: DefinitionSource, part: str
) -> QuotaGossip:
    """The ledger of this process and its gossip, not yet running.

    Args:
        settings: Where Kafka is.
        publish: For what this process counts.
        definitions: Have the quotas.
        part: `api` or `ingest`; a random suffix makes the ledger's name unique.
    """
    clock = WallClock()
    ledger = QuotaLedger(
        f"{part}-{secrets.token_hex(6)}",
        lambda one: definitions.current.customers.get(CustomerId(one)),
    )
    return QuotaGossip(
        settings,
        publish,
        ledger,
        # Ingest goes by the instants of records, which are of the wall clock.
        now_s=time.monotonic if part == "api" else lambda: clock.now().timestamp(),
        since=clock.now() - _GOSSIP_SINCE,
    )
