"""Faust's transport, with a fetcher that does not let one partition wait for another."""

import sys
from typing import Any, Final

from faust.transport.drivers import aiokafka as driver

from pop_stream.bus.clients import wait_for_consumption

_FETCH_WAIT_MS: Final = 500
"""Faust has brokers hold a fetch for three times as long, and no setting for it."""

_SWITCH_S: Final = 0.0005

_CONSUMED_WITHIN_S: Final = 0.5
"""Faust leaves records of partitions that it has paused lying there."""


class _Thread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]  # Faust is untyped here
    async def on_start(self) -> None:
        """Called by Faust, in the consumer's thread."""
        # Several times for each fetch, this thread would wait 5 ms for a busy one to let it on.
        sys.setswitchinterval(_SWITCH_S)
        await super().on_start()
        wait_for_consumption(self._consumer, within_s=_CONSUMED_WITHIN_S)
        self._consumer._fetcher._fetch_max_wait_ms = _FETCH_WAIT_MS  # noqa: SLF001


class _Consumer(driver.Consumer):  # type: ignore[misc]  # Faust is untyped here
    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class PatientTransport(driver.Transport):  # type: ignore[misc]  # Faust is untyped here
    """See `wait_for_consumption`; nor does a fetch begun before a rebalance hold much up."""

    Consumer: Any = _Consumer
