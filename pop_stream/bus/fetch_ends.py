"""Has a client's fetcher see every end of what it asked a broker."""

from typing import Any


def wake_on_every_response(fetcher: Any) -> None:  # noqa: ANN401  # aiokafka is untyped
    """Have a fetcher look anew once it may ask a broker again.

    It asks each broker for one thing at a time. Woken by something else just as an answer
    comes, it finds the broker still taken, asks it for nothing, and takes note of the answer
    all the same. That the broker is free afterwards wakes nobody: left to itself, the fetcher
    is deaf to that broker until it looks anew by the clock.

    Args:
        fetcher: Of a started consumer.
    """
    fetcher._in_flight = _InFlightBrokers(fetcher)  # noqa: SLF001  # there is no argument for it


class _InFlightBrokers(set[int]):
    """The brokers, by node id, that are asked for something."""

    def __init__(self, fetcher: Any) -> None:  # noqa: ANN401
        super().__init__(fetcher._in_flight)  # noqa: SLF001
        self._fetcher = fetcher

    def discard(self, node_id: object) -> None:
        """Called by the fetcher when it was answered, or gave up."""
        super().discard(node_id)
        self._fetcher._notify(self._fetcher._wait_consume_future)  # noqa: SLF001
