"""What the ports of API keys and of the audit log promise, on the fake and on Postgres."""

import dataclasses
from datetime import UTC, datetime, timedelta

import asyncpg
import msgspec
import pytest
import pytest_asyncio
from memory_keys import MemoryKeys

from pop_stream.auth.keys import make_key
from pop_stream.model.definitions import decode_api_key
from pop_stream.model.errors import (
    KeyStateError,
    LimitError,
    NotFoundError,
    RateLimitError,
    UnreadableRecordError,
)
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.revisions import AuditRecord, Author, CustomerLimits
from pop_stream.ports.audit import AuditFilter
from pop_stream.postgres.definitions import PostgresDefinitionOutbox
from pop_stream.postgres.keys import PostgresAuditLog, PostgresKeys, record_audit_entry
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALICE = Author(principal=Principal("key:alice", None, frozenset(Role)), request_id="r1")
READ = frozenset({Role.READ})


def key(customer_id="acme", roles=READ, **changes):
    return make_key(
        customer_id=customer_id, roles=roles, now=NOW, created_by="key:alice", **changes
    )[0]


@pytest_asyncio.fixture
async def pool(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield pool


@pytest.fixture(params=["memory", "postgres"])
def keys(request):
    """The port, on the fake and on Postgres."""
    if request.param == "memory":
        return MemoryKeys()
    return PostgresKeys(request.getfixturevalue("pool"))


@pytest.fixture
def log(keys, request):
    if isinstance(keys, MemoryKeys):
        return keys
    return PostgresAuditLog(request.getfixturevalue("pool"))


async def test_a_key_is_found_as_it_was_stored(keys):
    stored = key(title="nightly", expires_at=NOW + timedelta(days=1))
    await keys.create(stored, ALICE)
    assert await keys.find(stored.id) == stored
    assert await keys.find("a" * 16) is None


async def test_keys_are_listed_in_pages_and_by_customer(keys):
    ours = sorted([key() for _ in range(3)], key=lambda one: one.id)
    operators = key(customer_id=None, roles=frozenset({Role.ADMIN}))
    for one in (*ours, operators):
        await keys.create(one, ALICE)
    assert await keys.keys(customer_id="acme", limit=2) == ours[:2]
    assert await keys.keys(customer_id="acme", after=ours[1].id, limit=2) == ours[2:]
    assert len(await keys.keys(customer_id=None, limit=10)) == 4


async def test_a_rotated_key_goes_on_for_its_grace_and_never_longer_than_before(keys):
    old, short = key(title="nightly"), key(expires_at=NOW + timedelta(minutes=1))
    for one in (old, short):
        await keys.create(one, ALICE)
        new = await keys.rotate(one.id, key("beta"), ALICE, grace=timedelta(hours=1))
        assert (new.customer_id, new.roles, new.title) == ("acme", READ, one.title)
        assert (await keys.find(one.id)).replaced_by == new.id
    assert (await keys.find(old.id)).expires_at == NOW + timedelta(hours=1)
    assert (await keys.find(short.id)).expires_at == NOW + timedelta(minutes=1)


async def test_a_successor_ends_when_the_key_before_it_would_have_ended(keys):
    old = key(expires_at=NOW + timedelta(days=1))
    await keys.create(old, ALICE)
    new = await keys.rotate(old.id, key(), ALICE, grace=timedelta(hours=1))
    assert new.expires_at == NOW + timedelta(days=1)
    assert await keys.find(new.id) == new


@pytest.mark.parametrize("why", ["expired", "revoked", "replaced"])
async def test_a_key_that_has_ended_or_was_replaced_has_no_successor(keys, log, why):
    old = key(expires_at=NOW - timedelta(seconds=1) if why == "expired" else None)
    await keys.create(old, ALICE)
    if why == "revoked":
        await keys.revoke(old.id, ALICE, at=NOW)
    if why == "replaced":
        await keys.rotate(old.id, key(), ALICE, grace=timedelta(hours=1))
    stored = await keys.find(old.id)
    before = await log.entries(AuditFilter(), before=None, limit=9)
    late = key()
    with pytest.raises(KeyStateError, match=f"{old.id}.* {why}"):
        await keys.rotate(old.id, late, ALICE, grace=timedelta(hours=1))
    assert await keys.find(late.id) is None
    assert await keys.find(old.id) == stored
    assert await log.entries(AuditFilter(), before=None, limit=9) == before


async def test_a_key_is_revoked_once(keys):
    old = key()
    await keys.create(old, ALICE)
    revoked = await keys.revoke(old.id, ALICE, at=NOW)
    assert revoked.state(NOW) == "revoked"
    assert await keys.revoke(old.id, ALICE, at=NOW + timedelta(days=1)) == revoked
    for change in (
        keys.revoke("a" * 16, ALICE, at=NOW),
        keys.rotate("a" * 16, key(), ALICE, grace=timedelta(0)),
    ):
        with pytest.raises(NotFoundError, match="no key"):
            await change


async def test_what_changes_no_row_is_recorded_up_to_a_customers_limit(log):
    entry = AuditRecord(
        author=dataclasses.replace(ALICE, reason="the disk was \N{SNOWMAN}"),
        action="commanded",
        kind="agendas",
        object_id="cancel",
        after={"reason": "wrong \0 input", "filter": {"title": ["<b>"]}},
    )
    await log.record(entry)
    [got] = await log.entries(AuditFilter(kind="agendas"), before=None, limit=2)
    assert (got.action, got.object_id, got.before) == ("commanded", "cancel", None)
    assert msgspec.json.decode(got.after) == entry.after
    assert got.reason == entry.author.reason
    acme = Author(principal=Principal("key:acme", "acme", frozenset(Role)), request_id="r2")
    log = (
        dataclasses.replace(log, limits=CustomerLimits(changes_per_hour=1))
        if isinstance(log, PostgresAuditLog)
        else MemoryKeys(CustomerLimits(changes_per_hour=1))
    )
    await log.record(dataclasses.replace(entry, author=acme))
    with pytest.raises(RateLimitError):
        await log.record(dataclasses.replace(entry, author=acme))


async def test_every_change_of_a_key_is_in_the_audit_log_without_its_hash(keys, log):
    old, new = key(), key()
    await keys.create(old, ALICE)
    await keys.rotate(old.id, new, ALICE, grace=timedelta(0))
    await keys.revoke(new.id, ALICE, at=NOW)
    entries = await log.entries(AuditFilter(kind="key"), before=None, limit=10)
    assert [(one.action, one.object_id) for one in entries] == [
        ("revoked", new.id),
        ("rotated", old.id),
        ("created", new.id),
        ("created", old.id),
    ]
    revoked = entries[0]
    assert (revoked.principal, revoked.request_id) == ("key:alice", "r1")
    assert "revoked_at" not in msgspec.json.decode(revoked.before)
    assert "revoked_at" in msgspec.json.decode(revoked.after)
    assert not any(old.secret_sha256.encode() in (one.after or b"") for one in entries)
    older = await log.entries(AuditFilter(), before=entries[1].entry_id, limit=1)
    assert [one.entry_id for one in older] == [entries[2].entry_id]
    assert await log.entries(AuditFilter(principal="nobody"), before=None, limit=1) == []
    named = AuditFilter(object_id=old.id)
    assert len(await log.entries(named, before=None, limit=10)) == 2


async def test_a_change_that_fails_leaves_no_trace_and_the_log_cannot_be_changed(pool):
    author = Author(principal=ANYONE, request_id="r2")
    change = AuditRecord(author=author, action="created", kind="insight", object_id="i")
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await record_audit_entry(connection, change)
        await transaction.rollback()
        await record_audit_entry(connection, change)
        for forbidden in (
            "update audit_log set kind = ''",
            "delete from audit_log",
            "truncate audit_log",
        ):
            with pytest.raises(asyncpg.RaiseError, match="append-only"):
                await connection.execute(forbidden)
    assert len(await PostgresAuditLog(pool).entries(AuditFilter(), before=None, limit=9)) == 1


async def test_every_change_of_a_key_is_published_for_those_who_cannot_ask(pool):
    keys, outbox = PostgresKeys(pool), PostgresDefinitionOutbox(pool)
    old, new = key(title="nightly"), key()
    await keys.create(old, ALICE)
    await keys.rotate(old.id, new, ALICE, grace=timedelta(hours=1))
    await keys.revoke(old.id, ALICE, at=NOW)
    async with outbox.claim_batch(9) as rows:
        got = [(one.key, one.version) for one in rows]
        assert got == [
            (f"key/{old.id}", 1), (f"key/{new.id}", 1), (f"key/{old.id}", 2),
            (f"key/{old.id}", 3),
        ]  # fmt: skip
        last = rows[-1]
    assert decode_api_key(last.key, last.body) == await keys.find(old.id)
    with pytest.raises(UnreadableRecordError, match="is key"):
        decode_api_key("key/other", last.body)


LIMITS = CustomerLimits(keys=2, changes_per_hour=5)
OWN = Author(principal=Principal("key:own", "acme", frozenset(Role)), request_id="r2")


@pytest.fixture(params=["memory", "postgres"])
def limited(request):
    if request.param == "memory":
        return MemoryKeys(LIMITS)
    return PostgresKeys(request.getfixturevalue("pool"), LIMITS)


async def test_a_customer_has_no_more_keys_than_it_may(limited):
    await limited.create(key(expires_at=NOW + timedelta(days=1)), OWN)
    first = key()
    await limited.create(first, OWN)
    with pytest.raises(LimitError, match=r"'acme' has 2 keys.*POP_MAX_KEYS"):
        await limited.create(key(), OWN)
    with pytest.raises(LimitError):
        await limited.rotate(first.id, key(), OWN, grace=timedelta(hours=1))
    await limited.rotate(first.id, key(), OWN, grace=timedelta(0))
    await limited.create(key("beta"), ALICE)
    await limited.create(key(), ALICE)


async def test_keys_cannot_be_made_and_ended_without_end(limited):
    while len(await limited.keys(customer_id="acme", limit=100)) < 3:  # no wait
        made = key()
        await limited.create(made, OWN)
        await limited.revoke(made.id, OWN, at=NOW)
    with pytest.raises(RateLimitError):
        await limited.create(key(), OWN)
