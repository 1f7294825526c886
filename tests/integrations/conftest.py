"""What the tests of several integrations share."""

import secrets

import pytest_asyncio
from databases import database
from pydantic import SecretStr

from pop_stream.settings import Settings


@pytest_asyncio.fixture(scope="module")
async def module_settings(servers):
    """Settings with topics and a database that the tests of a file share."""
    async with database(servers.dsn) as dsn:
        yield Settings(
            kafka_bootstrap=servers.bootstrap,
            postgres_dsn=SecretStr(dsn),
            topic_prefix=f"t{secrets.token_hex(4)}.",
            http_port=0,
        )
