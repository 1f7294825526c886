"""Faust's transport, with a fetcher that does not let one partition wait for another."""

from typing import Any

from faust.transport.drivers import aiokafka as driver

from pop_stream.bus.clients import wait_for_consumption


class _Thread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]  # Faust is untyped here
    async def on_start(self) -> None:
        """Called by Faust, in the consumer's thread."""
        await super().on_start()
        wait_for_consumption(self._consumer)


class _Consumer(driver.Consumer):  # type: ignore[misc]  # Faust is untyped here
    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class PatientTransport(driver.Transport):  # type: ignore[misc]  # Faust is untyped here
    """See `wait_for_consumption`: Faust asks brokers to hold a fetch for 1.5 seconds."""

    Consumer: Any = _Consumer
