"""Signals are kept, replaced and bounded; in memory as in the database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from memory_signals import MemorySignals

from pop_stream.model.errors import RateLimitError
from pop_stream.model.signal import Signal
from pop_stream.operations import provisioning
from pop_stream.postgres import signals as module
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.signals import PostgresSignals

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def postgres_signals(settings):
    await provisioning.migrate(settings)
    async with open_pool(settings) as pool:
        yield PostgresSignals(pool)


@pytest.fixture
def memory_signals():
    return MemorySignals()


@pytest.fixture(params=["memory_signals", "postgres_signals"])
def store(request):
    return request.getfixturevalue(request.param)


def signal(name="paid", customer_id="acme", **changes):
    known = Signal(
        customer_id=customer_id,
        name=name,
        payload=b'{"amount":12}',
        given_at=NOW,
        given_by="bob",
        expires_at=NOW + timedelta(days=1),
    )
    return replace(known, **changes)


async def test_a_signal_is_kept_until_it_expires(store):
    await store.give(signal())
    assert list(await store.kept_of("acme", NOW, 10)) == [signal()]
    assert not await store.kept_of("acme", NOW + timedelta(days=1), 10)


async def test_the_last_of_a_name_counts(store):
    await store.give(signal())
    later = signal(payload=b"", given_by="eve")
    await store.give(later)
    assert list(await store.kept_of("acme", NOW, 10)) == [later]


async def test_each_customer_has_its_own(store):
    ours, theirs = signal(), signal(customer_id="other")
    await store.give(theirs)
    await store.give(ours)
    assert list(await store.kept_of("acme", NOW, 10)) == [ours]
    assert list(await store.kept_of(None, NOW, 10)) == [ours, theirs]
    assert list(await store.kept_of(None, NOW, 1)) == [ours]


async def test_so_many_are_kept_of_a_customer_and_no_more(store, monkeypatch):
    monkeypatch.setattr(module, "MAX_KEPT_SIGNALS", 2)
    monkeypatch.setattr("memory_signals.MAX_KEPT_SIGNALS", 2)
    await store.give(signal("one"))
    await store.give(signal("two"))
    await store.give(signal("two", given_by="eve"))
    with pytest.raises(RateLimitError, match="signals kept"):
        await store.give(signal("three"))
    await store.give(signal("three", customer_id="other"))
    later = NOW + timedelta(days=2)
    await store.give(signal("three", given_at=later, expires_at=later + timedelta(days=1)))
