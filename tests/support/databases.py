"""Databases that a test has to itself."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg


@asynccontextmanager
async def database(dsn: str) -> AsyncIterator[str]:
    """A database without any table beside the one that is named; dropped at the end."""
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(dsn)
    await admin.execute(f'CREATE DATABASE "{name}"')
    try:
        yield _with_database(dsn, name)
    finally:
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await admin.close()


def _with_database(dsn: str, name: str) -> str:
    head, _, query = dsn.partition("?")
    scheme, _, rest = head.partition("://")
    host = rest.split("/", 1)[0]
    return f"{scheme}://{host}/{name}" + (f"?{query}" if query else "")
