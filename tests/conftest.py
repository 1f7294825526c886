"""Real servers for the tests that need them, and a world of its own for each test.

`POP_TEST_BOOTSTRAP` and `POP_TEST_DSN` name running servers; without them embedded ones are
started once, on first use.
"""

import asyncio
import os
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import pytest_timeout
from aiokafka.admin import AIOKafkaAdminClient
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


_own_brokers: list[str] = []
"""Addresses of those that were started here."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Delete all topics once the tests of a file are done.

    Each test has some thirty of its own. After some hundred tests a broker that keeps them
    all has ten thousand partitions, and gives new ones no leader for minutes.
    """
    yield
    if nextitem is not None and nextitem.path != item.path:
        loop = asyncio.new_event_loop()  # not the one that the tests share
        try:
            for bootstrap in _own_brokers:
                loop.run_until_complete(_delete_topics(bootstrap))
        finally:
            loop.close()


async def _delete_topics(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        if topics := [one for one in await admin.list_topics() if not one.startswith("__")]:
            await admin.delete_topics(topics, timeout_ms=60_000)
    finally:
        await admin.close()


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
            _own_brokers.append(embedded.bootstrap)
            yield Servers(embedded.bootstrap, embedded.dsn)
            _own_brokers.remove(embedded.bootstrap)


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
