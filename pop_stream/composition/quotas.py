"""The door of a process: what it lets in, and tells the others of."""

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
"""So far back a new door listens; whoever has something to say says it every ten seconds."""


def doors(
    settings: Settings, publish: Publisher, definitions: DefinitionSource, part: str
) -> QuotaGossip:
    """The door of this process, not yet kept."""
    clock = WallClock()
    door = QuotaLedger(
        f"{part}-{secrets.token_hex(6)}",
        lambda one: definitions.current.customers.get(CustomerId(one)),
    )
    return QuotaGossip(
        settings,
        publish,
        door,
        # Ingest goes by the instants of records, which are of the wall clock.
        now_s=time.monotonic if part == "api" else lambda: clock.now().timestamp(),
        since=clock.now() - _GOSSIP_SINCE,
    )
