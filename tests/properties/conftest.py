"""Properties of the pure core: no server, the same examples on every run of CI."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from socket_guard import sockets_blocked

# Time limits per example would fail on a busy machine, not on a wrong program.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("local", max_examples=60, stateful_step_count=40, **_COMMON)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.register_profile("long", max_examples=1_000, stateful_step_count=80, **_COMMON)
settings.load_profile(
    os.environ.get("POP_TEST_PROFILE", "ci" if "CI" in os.environ else "local")
)


# Per module: hypothesis frowns on fixtures per test, and a guard for the whole session would
# still stand when other folders are run.
@pytest.fixture(autouse=True, scope="module")
def _alone() -> Iterator[None]:
    with sockets_blocked(loopback=False):
        yield
