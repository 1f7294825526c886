"""Real servers for the tests that need them, and a world of its own for each test.

`POP_TEST_BOOTSTRAP` and `POP_TEST_DSN` name running servers; without them embedded ones are
started once, on first use.
"""

import os
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import pytest_timeout
from databases import database
from deadlines import quiet_s
from pydantic import SecretStr

from pop_stream.devserver.servers import DevServers
from pop_stream.settings import Settings

pytest_plugins = ["leaks"]


@pytest.hookimpl
def pytest_timeout_set_timer(item: Any, settings: Any) -> bool:
    """Let the time limit of a test, too, follow the machine."""
    ends_s = quiet_s() + settings.timeout

    def look(*_: object) -> None:
        left_s = ends_s - quiet_s()
        if left_s <= 0:
            pytest_timeout.timeout_sigalrm(item, settings)
        else:
            signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.1))

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel
    signal.signal(signal.SIGALRM, look)
    look()
    return True


@dataclass(frozen=True)
class Servers:
    bootstrap: str
    dsn: str


@pytest_asyncio.fixture(scope="session")
async def servers() -> AsyncIterator[Servers]:
    bootstrap, dsn = os.environ.get("POP_TEST_BOOTSTRAP"), os.environ.get("POP_TEST_DSN")
    if bootstrap and dsn:
        yield Servers(bootstrap, dsn)
        return
    # Not below pytest's own folder: another run closes that to all other users, and run by
    # root, Postgres is one of them.
    with tempfile.TemporaryDirectory(prefix="pop-stream-tests-") as folder:
        async with DevServers(folder=Path(folder), cache=None) as embedded:
            yield Servers(embedded.bootstrap, embedded.dsn)


@pytest.fixture
def bootstrap(servers: Servers) -> str:
    return servers.bootstrap


@pytest_asyncio.fixture
async def dsn(servers: Servers) -> AsyncIterator[str]:
    """A database of its own, without any table."""
    async with database(servers.dsn) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def settings(servers: Servers, dsn: str) -> Settings:
    """Settings with a topic prefix and a database of their own; neither is filled."""
    return Settings(
        kafka_bootstrap=servers.bootstrap,
        postgres_dsn=SecretStr(dsn),
        topic_prefix=f"t{secrets.token_hex(4)}.",
        http_port=0,
    )
