"""Keys as callers show them: how long they are cached, and what counts without Postgres."""

import asyncio
from datetime import timedelta

import pytest
from fakes import ManualClock

from pop_stream.auth import keys as keys_module
from pop_stream.auth.keys import FRESH_FOR, STALE_FOR, ApiKeyCache, make_key
from pop_stream.auth.tokens import CredentialVerifier
from pop_stream.model import api_keys
from pop_stream.model.errors import (
    ForbiddenError,
    SubmissionError,
    UnauthenticatedError,
    UnavailableError,
)
from pop_stream.model.identity import ANYONE, Principal, Role

READ = frozenset({Role.READ})
SOON = timedelta(milliseconds=1)


class Store:
    """Keys in a dict; counts how often it is asked."""

    def __init__(self):
        self.keys = {}
        self.asked = 0
        self.is_away = False
        self.was_asked = asyncio.Event()
        self.hold: asyncio.Event | None = None

    async def find(self, key_id):
        self.asked += 1
        self.was_asked.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.is_away:
            msg = "away"
            raise UnavailableError(msg)
        return self.keys.get(key_id)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def make(store, clock):
    def make(**changes):
        made = {"customer_id": "acme", "roles": READ, "created_by": "t"} | changes
        key, token = make_key(now=clock.now(), **made)
        store.keys[key.id] = key
        return key, f"Bearer {token}"

    return make


@pytest.fixture
def credentials(store, clock):
    return CredentialVerifier(ApiKeyCache(store, clock))


async def test_a_key_names_its_principal(credentials, make):
    key, header = make()
    principal = await credentials.identify(header)
    assert principal == Principal(f"key:{key.id}", "acme", READ)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic YWNtZTpzZWNyZXQ=",
        "Bearer pop_x_y",
        "Bearer a.b.c",
        "Bearer pop_aaaaaaaaaaaaaaaa_" + "A" * 43,
    ],
)
async def test_what_is_no_key_is_nobody(credentials, header):
    with pytest.raises(UnauthenticatedError):
        await credentials.identify(header)


async def test_wrong_revoked_expired_and_unknown_keys_are_answered_alike(
    credentials, make, store, clock
):
    known, header = make()
    revoked, revoked_header = make()
    store.keys[revoked.id] = revoked.model_copy(update={"revoked_at": clock.now()})
    _, expired = make(expires_at=clock.now())
    unknown, unknown_header = make()
    del store.keys[unknown.id]
    wrong = f"Bearer {api_keys.token_of(known.id, 'A' * 43)}"
    texts = set()
    for sent in (revoked_header, expired, unknown_header, wrong):
        with pytest.raises(UnauthenticatedError) as refused:
            await credentials.identify(sent)
        texts.add(str(refused.value))
    assert len(texts) == 1
    await credentials.identify(header)


async def test_a_key_is_asked_for_once_while_it_is_fresh(credentials, make, store, clock):
    _, header = make()
    for _ in range(5):
        await credentials.identify(header)
    assert store.asked == 1
    clock.move(FRESH_FOR)
    await credentials.identify(header)
    assert store.asked == 2


async def test_a_revocation_acts_once_the_key_is_no_longer_fresh(
    credentials, make, store, clock
):
    key, header = make()
    await credentials.identify(header)
    store.keys[key.id] = key.model_copy(update={"revoked_at": clock.now()})
    clock.move(FRESH_FOR)
    with pytest.raises(UnauthenticatedError):
        await credentials.identify(header)


async def test_callers_at_the_same_time_share_one_question(credentials, make, store):
    _, header = make()
    store.hold = asyncio.Event()
    asking = [asyncio.create_task(credentials.identify(header)) for _ in range(20)]
    await store.was_asked.wait()
    asking[0].cancel()
    store.hold.set()
    await asyncio.gather(*asking[1:])
    assert store.asked == 1


async def test_while_postgres_is_away_known_keys_go_on_and_others_cannot_be_judged(
    credentials, make, store, clock
):
    _, header = make()
    _, stranger = make()
    await credentials.identify(header)
    store.is_away = True
    clock.move(STALE_FOR)
    assert (await credentials.identify(header)).customer_id == "acme"
    with pytest.raises(UnavailableError):
        await credentials.identify(stranger)
    clock.move(SOON)
    with pytest.raises(UnavailableError):
        await credentials.identify(header)


async def test_while_postgres_is_away_what_was_published_of_a_key_counts(store, clock, make):
    answer = {}
    credentials = CredentialVerifier(ApiKeyCache(store, clock, answer.get))
    key, header = make()
    _, unpublished = make()
    store.is_away = True
    with pytest.raises(UnavailableError):
        await credentials.identify(header)
    answer[key.id] = key
    clock.move(timedelta(days=1))  # however long it takes
    assert (await credentials.identify(header)).customer_id == "acme"
    with pytest.raises(UnavailableError):
        await credentials.identify(unpublished)
    with pytest.raises(UnauthenticatedError):
        await credentials.identify(f"{header[:-43]}{'A' * 43}")


@pytest.mark.parametrize("who_knows", ["published", "remembered"])
async def test_a_revocation_that_is_known_of_counts(store, clock, make, who_knows):
    answer = {}
    credentials = CredentialVerifier(ApiKeyCache(store, clock, answer.get))
    key, header = make()
    revoked = key.model_copy(update={"revoked_at": clock.now()})
    answer[key.id] = key
    if who_knows == "published":
        await credentials.identify(header)
        answer[key.id] = revoked
    else:
        store.keys[key.id] = revoked
        with pytest.raises(UnauthenticatedError):
            await credentials.identify(header)
    store.is_away = True
    clock.move(FRESH_FOR)
    with pytest.raises(UnauthenticatedError):
        await credentials.identify(header)


async def test_a_key_that_ends_while_postgres_is_away_ends(credentials, make, store, clock):
    _, header = make(expires_at=clock.now() + timedelta(minutes=5))
    await credentials.identify(header)
    store.is_away = True
    clock.move(timedelta(minutes=5))
    with pytest.raises(UnauthenticatedError):
        await credentials.identify(header)


async def test_postgres_is_left_alone_for_a_moment_once_it_did_not_answer(
    credentials, make, store, clock
):
    _, header = make()
    store.is_away = True
    for _ in range(3):
        with pytest.raises(UnavailableError):
            await credentials.identify(header)
    assert store.asked == 1
    store.is_away = False
    clock.move(timedelta(seconds=1))
    await credentials.identify(header)


async def test_only_so_many_keys_are_remembered(store, clock, make, monkeypatch):
    monkeypatch.setattr(keys_module, "_MAX_CACHED", 2)
    credentials = CredentialVerifier(ApiKeyCache(store, clock))
    headers = [make()[1] for _ in range(3)]
    for header in headers:
        await credentials.identify(header)
    await credentials.identify(headers[2])
    assert store.asked == 3
    await credentials.identify(headers[0])
    assert store.asked == 4


def test_a_key_keeps_no_secret():
    key, token = make_key(customer_id=None, roles=READ, now=ManualClock().now(), created_by="t")
    found = api_keys.parse_token(token)
    assert found is not None
    assert found[0] == key.id
    assert found[1] not in key.model_dump_json()
    assert len(found[1]) == 43  # 256 bits


OPERATOR = Principal("o", None, frozenset({Role.OPERATE, Role.READ}))
CUSTOMER = Principal("c", "acme", frozenset({Role.OPERATE, Role.READ}))


@pytest.mark.parametrize(
    ("granter", "customer_id", "roles", "error"),
    [
        (ANYONE, None, {"admin"}, None),
        (ANYONE, "acme", {"submit", "operate"}, None),
        (ANYONE, "acme", {"admin"}, SubmissionError),
        (OPERATOR, "acme", {"read"}, ForbiddenError),
        (CUSTOMER, "acme", {"read", "operate"}, None),
        (CUSTOMER, "acme", {"submit"}, ForbiddenError),
        (CUSTOMER, "beta", {"read"}, ForbiddenError),
        (CUSTOMER, None, {"read"}, ForbiddenError),
    ],
)
def test_nobody_grants_more_than_it_has(granter, customer_id, roles, error):
    wanted = frozenset(Role(one) for one in roles)
    if error is None:
        api_keys.check_grant(granter, customer_id, wanted)
    else:
        with pytest.raises(error):
            api_keys.check_grant(granter, customer_id, wanted)
