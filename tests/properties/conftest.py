"""Properties of the pure policy: no server, and hypothesis as its profile says."""

from collections.abc import Iterator

import hypothesis_profiles  # noqa: F401  # importing it loads the profile
import pytest
from socket_guard import sockets_blocked


# Per module: hypothesis frowns on fixtures per test, and a guard for the whole session would
# still stand when other folders are run.
@pytest.fixture(autouse=True, scope="module")
def _alone() -> Iterator[None]:
    with sockets_blocked(loopback=False):
        yield
