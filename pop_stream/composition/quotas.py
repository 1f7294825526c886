"""The quota ledger of a process, and its exchange with the others."""

import secrets
import time
from datetime import timedelta
from typing import Final

from pop_stream.clock import WallClock
from pop_stream.kafka.quota_gossip import QuotaGossip
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher
from pop_stream.settings import Settings

_GOSSIP_SINCE: Final = timedelta(minutes=2)
"""So far back a new ledger reads; each reports all it has every ten seconds."""


def quota_gossip_of(
    settings: Settings, publish: Publisher, definitions: DefinitionSource, part: str
) -> QuotaGossip:
    """The gossip of a new ledger of this process, not yet running; enter it."""
    clock = WallClock()
    ledger = QuotaLedger(
        f"{part}-{secrets.token_hex(6)}",
        lambda one: definitions.current.customers.get(CustomerId(one)),
        lambda one: definitions.current.insights.get(InsightId(one)),
    )
    return QuotaGossip(
        settings,
        publish,
        ledger,
        # Ingest goes by the instants of records, which are of the wall clock.
        now_s=time.monotonic if part == "api" else lambda: clock.now().timestamp(),
        since=clock.now() - _GOSSIP_SINCE,
    )
