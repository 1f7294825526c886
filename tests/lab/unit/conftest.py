"""Unit tests of the lab need no server but those they start themselves."""

from collections.abc import Iterator

import pytest
from socket_guard import sockets_blocked


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with sockets_blocked(loopback=True):
        yield
