"""An agenda is written into the outbox by the connections that services have."""

import json
import re

import asyncpg
import django_site
import psycopg
import pytest
import pytest_asyncio
import sqlalchemy
from asgiref.sync import sync_to_async
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from pop_stream import outbox
from pop_stream.postgres.submission_outbox import outbox_sql

django_site.set_up()

from django.db import connections, transaction  # noqa: E402  # needs settings
from django.test import override_settings  # noqa: E402
from django_site import work  # noqa: E402

AGENDA = {"customer_id": "acme", "operations": [{"name": "a", "type": "noop", "payload": "%s"}]}


class StopTransactionError(Exception):
    """Rolls a transaction back."""


@pytest_asyncio.fixture
async def shop(dsn):
    """Another connection, which sees what is committed."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(outbox_sql())
    yield connection
    await connection.close()


async def committed(shop):
    rows = await shop.fetch("select agenda_id, agenda from pop_outbox order by position")
    for row in rows:
        assert json.loads(row["agenda"])["id"] == row["agenda_id"]
        assert json.loads(row["agenda"])["operations"] == AGENDA["operations"]
    return [row["agenda_id"] for row in rows]


async def test_psycopg(shop, dsn):
    with psycopg.connect(dsn) as connection:
        first = outbox.submit(connection, AGENDA)
        second = outbox.submit(connection.cursor(), AGENDA)
        assert await committed(shop) == []
    with psycopg.connect(dsn) as connection:
        outbox.submit(connection, AGENDA)
        connection.rollback()
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        third = await outbox.asubmit(connection, AGENDA)
    assert await committed(shop) == [first, second, third]


def sqlalchemy_url(dsn):
    return re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", dsn)


async def test_sqlalchemy(shop, dsn):
    engine = sqlalchemy.create_engine(sqlalchemy_url(dsn))
    with engine.begin() as connection:
        first = outbox.submit(connection, AGENDA)
        assert await committed(shop) == []
    with Session(engine) as session:
        outbox.submit(session, AGENDA)
        session.rollback()
        second = outbox.submit(session, AGENDA)
        session.commit()
    engine.dispose()
    later = create_async_engine(sqlalchemy_url(dsn))
    async with later.begin() as connection:
        third = await outbox.asubmit(connection, AGENDA)
    await later.dispose()
    assert await committed(shop) == [first, second, third]


@pytest.fixture
def shop_database(dsn):
    """The service's database by Django's name for it."""
    found = psycopg.conninfo.conninfo_to_dict(dsn)
    connections.settings["shop"] = connections.settings["default"] | {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": found["dbname"],
        "USER": found.get("user", ""),
        "PASSWORD": found.get("password", ""),
        "HOST": found.get("host", ""),
        "PORT": found.get("port", ""),
    }
    yield "shop"
    del connections.settings["shop"]


def enqueue(*, fails):
    """What a view does, in a thread of its own."""
    try:
        with transaction.atomic(using="shop"):
            result = work.repeat.enqueue("you")
            if fails:
                raise StopTransactionError
            return result
    finally:
        connections["shop"].close()


async def test_a_task_of_django_is_enqueued_in_its_transaction(shop, shop_database):
    tasks = django_site.tasks("http://127.0.0.1:1", OUTBOX=True, DATABASE=shop_database)
    call = sync_to_async(enqueue)
    with override_settings(TASKS=tasks):
        with pytest.raises(StopTransactionError):
            await call(fails=True)
        result = await call(fails=False)
    (row,) = await shop.fetch("select agenda_id, customer_id, agenda from pop_outbox")
    assert (row["agenda_id"], row["customer_id"]) == (result.id, "shop")
    assert json.loads(row["agenda"])["operations"][0]["type"] == "django-task"
