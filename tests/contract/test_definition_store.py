"""What every store of definitions does, in memory as in Postgres."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from memory_definitions import MemoryDefinitions

from pop_stream.model.definition_lists import cursor_of, parse_list
from pop_stream.model.definitions import Customer, Definition, Insight, ResourcePool
from pop_stream.model.errors import (
    DefinitionError,
    ExistsError,
    InUseError,
    LimitError,
    NotFoundError,
    PreconditionError,
    RateLimitError,
)
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.revisions import (
    Author,
    CustomerLimits,
    Precondition,
    Revision,
    create,
    patch,
    put,
    remove,
)
from pop_stream.model.schedule import Schedule
from pop_stream.model.template import AgendaTemplate
from pop_stream.ports.definitions import DefinitionOutbox, DefinitionStore
from pop_stream.postgres.definitions import PostgresDefinitionOutbox, PostgresDefinitions
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.settings import Settings

AUTHOR = Author(principal=ANYONE, request_id="r1")
ACME = Customer(id="acme", weight=2)


@dataclass
class Both:
    store: DefinitionStore
    outbox: DefinitionOutbox

    async def make(self, *revisions: Revision):
        return await self.store.change(revisions, AUTHOR)

    async def define(self, *definitions: Definition):
        return await self.make(*(put(one) for one in definitions))

    async def pages(self, kind: str, *parameters: tuple[str, str], seen_by=None):
        """All pages of a list, each as ids, and the totals that they had."""
        pages, totals, given = [], set(), list(parameters)
        while True:
            query = parse_list(kind, given, seen_by=seen_by).query
            listed = await self.store.list(query)
            pages.append([one.definition.id for one in listed.found])
            totals.add(listed.total)
            if listed.last is None:
                return pages, totals
            given = [*parameters, ("cursor", cursor_of(query.sorts, listed.last))]

    async def ids(self, kind: str, *parameters: tuple[str, str], seen_by=None):
        pages, _ = await self.pages(kind, *parameters, seen_by=seen_by)
        return [one for page in pages for one in page]

    async def taken(self) -> list[tuple[str, int]]:
        async with self.outbox.claim_batch(100) as rows:
            return [(row.key, row.version) for row in rows]

    async def fail_to_take(self) -> None:
        async with self.outbox.claim_batch(100):
            raise ZeroDivisionError


@pytest.fixture
def memory() -> Both:
    store = MemoryDefinitions()
    return Both(store, store)


@pytest_asyncio.fixture
async def postgres(settings: Settings) -> AsyncIterator[Both]:
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield Both(PostgresDefinitions(pool), PostgresDefinitionOutbox(pool))


LIMITS = CustomerLimits(templates=2, schedules=1, changes_per_hour=6, versions=3)


@pytest_asyncio.fixture(params=["memory", "postgres"])
async def limited(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Both]:
    if request.param == "memory":
        store = MemoryDefinitions(limits=LIMITS)
        yield Both(store, store)
        return
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield Both(PostgresDefinitions(pool, LIMITS), PostgresDefinitionOutbox(pool))


@pytest.fixture(params=["memory", "postgres"])
def both(request: pytest.FixtureRequest) -> Both:
    return request.getfixturevalue(request.param)


async def test_a_definition_is_kept_in_versions(both):
    [first] = await both.make(create(ACME))
    assert (first.definition, first.version) == (ACME, 1)
    [second] = await both.make(patch("customer", "acme", {"weight": 3, "paused": True}))
    assert (second.definition.weight, second.version) == (3, 2)
    [third] = await both.make(patch("customer", "acme", {"weight": None}))
    assert third.definition == Customer(id="acme", paused=True)
    assert await both.store.get("customer", "acme") == third
    assert third.created_at == first.created_at
    assert (await both.store.version("customer", "acme", 2)).definition == second.definition
    assert await both.store.version("customer", "acme", 9) is None
    assert await both.store.get("customer", "other") is None
    assert await both.store.get("pool", "acme") is None


async def test_a_version_is_seen_by_whom_it_and_the_last_one_are_for(both):
    one = Insight(id="media", owner="acme", visibility="allowed", allowed=("Beta",))

    async def seen(version):
        names = ("acme", "beta", "gamma", None)
        found = [
            (name, await both.store.version("insight", "media", version, seen_by=name))
            for name in names
        ]
        return [name for name, stored in found if stored]

    await both.define(one)
    assert await seen(1) == ["acme", "beta", None]
    await both.make(patch("insight", "media", {"visibility": "global", "allowed": None}))
    assert await seen(1) == ["acme", "beta", None]
    assert await seen(2) == ["acme", "beta", "gamma", None]
    await both.make(patch("insight", "media", {"visibility": "owner"}))
    assert await seen(2) == await seen(3) == ["acme", None]
    await both.make(remove("insight", "media"))
    assert await seen(2) == await seen(3) == ["acme", None]
    assert await seen(4) == []
    await both.define(one.model_copy(update={"visibility": "global", "allowed": ()}))
    await both.make(remove("insight", "media"))
    assert await seen(2) == await seen(5) == ["acme", "beta", "gamma", None]
    assert await seen(3) == ["acme", None]
    await both.define(ACME)
    for version in (1, 2):
        stored = await both.store.version("customer", "acme", version, seen_by="beta")
        assert stored is None


async def test_what_changes_nothing_makes_no_version(both):
    await both.define(ACME)
    [again] = await both.define(ACME)
    assert again.version == 1
    assert await both.taken() == [("customer/acme", 1)]


async def test_versions_go_on_after_a_deletion(both):
    await both.define(ACME)
    assert await both.make(remove("customer", "acme")) == [None]
    assert await both.store.get("customer", "acme") is None
    assert await both.store.version("customer", "acme", 2) is None
    [back] = await both.define(ACME)
    assert back.version == 3


async def test_the_outbox_has_every_version_in_order_until_it_is_taken(both):
    await both.define(ACME, ResourcePool(id="gpu", max_in_flight=4))
    await both.make(remove("customer", "acme"))
    with pytest.raises(ZeroDivisionError):
        await both.fail_to_take()
    async with both.outbox.claim_batch(2) as rows:
        assert [(row.key, row.version, row.body is None) for row in rows] == [
            ("customer/acme", 1, False),
            ("pool/gpu", 1, False),
        ]
    async with both.outbox.claim_batch(2) as rows:
        assert [(row.key, row.version, row.body) for row in rows] == [
            ("customer/acme", 2, None)
        ]
    assert await both.taken() == []
    newest = {
        row.key: (row.version, row.body is None) for row in await both.outbox.latest_versions()
    }
    assert newest == {"customer/acme": (2, True), "pool/gpu": (1, False)}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (create(ACME), ExistsError),
        (put(ACME, Precondition(versions=frozenset({7}))), PreconditionError),
        (put(ACME, Precondition(exists=False)), PreconditionError),
        (put(Customer(id="new"), Precondition(exists=True)), PreconditionError),
        (patch("customer", "none", {}), NotFoundError),
        (patch("customer", "acme", {"weight": 0}), DefinitionError),
        (patch("customer", "acme", {"id": "other"}), DefinitionError),
        (remove("customer", "none"), NotFoundError),
        (remove("customer", "acme", Precondition(versions=frozenset({2}))), PreconditionError),
        (put(Insight(id="i", pool="none")), DefinitionError),
        (put(Customer(id="c", pool="none")), DefinitionError),
        (patch("insight", "media", {"pool": "gpu"}), DefinitionError),
        (patch("insight", "media", {"partitions": 3}), DefinitionError),
    ],
)
async def test_a_refused_change_changes_nothing_beside_it(both, change, error):
    await both.define(ACME, ResourcePool(id="gpu", max_in_flight=1), Insight(id="media"))
    with pytest.raises(error):
        await both.make(put(Customer(id="beside")), change)
    assert await both.store.get("customer", "beside") is None
    assert len(await both.taken()) == 3


async def test_what_is_in_use_is_not_deleted(both):
    template = AgendaTemplate(id="t", owner="acme", agenda={"customer_id": "beta"})
    await both.define(
        ACME,
        Customer(id="beta"),
        ResourcePool(id="gpu", max_in_flight=1),
        Insight(id="media", pool="gpu", owner="acme"),
        Customer(id="gamma", pool="gpu", default_insight="media"),
        template,
    )
    uses = {
        ("pool", "gpu"): ("customer/gamma", "insight/media"),
        ("customer", "acme"): ("insight/media", "template/t"),
        ("customer", "beta"): ("template/t",),
        ("insight", "media"): ("customer/gamma",),
    }
    for (kind, name), users in uses.items():
        with pytest.raises(InUseError) as error:
            await both.make(remove(kind, name))
        assert error.value.used_by == users
    # Together they may go: nothing is left that needs one of them.
    await both.make(
        *(remove(*one) for one in (*uses, ("template", "t"), ("customer", "gamma")))
    )


async def define_many(both):
    await both.define(
        ResourcePool(id="gpu", max_in_flight=1),
        Insight(id="a", title="same", precedence=2, mappers={"operation_types": ["x", "y"]}),
        Insight(id="b", title="same", precedence=1, pool="gpu", target=5),
        Insight(id="c", title="other", precedence=3, owner="acme"),
        Insight(id="d", precedence=1, owner="acme", visibility="allowed", allowed=("Beta",)),
        Insight(id="e", precedence=1, aging_s=1.5),
    )


@pytest.mark.parametrize(
    ("parameters", "ids"),
    [
        ([], "abcde"),
        ([("title", "same")], "ab"),
        ([("title", "same"), ("title", "other")], "abc"),
        ([("title", "same"), ("precedence", "1")], "b"),
        ([("pool", "gpu")], "b"),
        ([("pool", "null")], "acde"),
        ([("target", "auto")], "acde"),
        ([("target", "5")], "b"),
        ([("partitions", "4")], "abcde"),
        ([("allowed", "Beta")], "d"),
        ([("mappers.operation_types", "y")], "a"),
        ([("aging_s", "1.5")], "e"),
        ([("version", "1")], "abcde"),
        ([("version", "2")], ""),
        ([("id", "c")], "c"),
        ([("sort", "-id")], "edcba"),
        ([("sort", "precedence,-id")], "edbac"),
        ([("sort", "-precedence")], "cabde"),
        ([("sort", "-title,precedence")], "bacde"),
        ([("sort", "target")], "acdeb"),
        ([("sort", "aging_s,-owner")], "cdabe"),
    ],
)
async def test_lists_are_filtered_and_sorted(both, parameters, ids):
    await define_many(both)
    assert await both.ids("insight", *parameters) == list(ids)


@pytest.mark.parametrize(
    ("parameters", "seen_by", "ids"),
    [
        ([("allowed", "Gamma")], "acme", "d"),
        ([("allowed", "Gamma")], "beta", ""),
        ([("allowed", "Beta")], "beta", "d"),
        ([("allowed", "Gamma")], "gamma", "d"),
        ([("allowed", "Beta")], "gamma", ""),
        ([("allowed", "Delta")], "beta", "f"),
        ([("sort", "allowed,id"), ("allowed", "Beta")], "beta", "d"),
    ],
)
async def test_who_else_is_allowed_is_found_by_the_owner_alone(both, parameters, seen_by, ids):
    shared = {"visibility": "allowed", "allowed": ("Beta", "Gamma")}
    await both.define(Insight(id="d", owner="acme", **shared))
    await both.define(
        Insight(id="e", owner="acme", visibility="global", allowed=("Gamma",)),
        Insight(id="f", owner="beta", allowed=("Delta",)),
    )
    found = await both.store.list(parse_list("insight", parameters, seen_by=seen_by).query)
    assert [one.definition.id for one in found.found if one.definition.id != "e"] == list(ids)
    assert found.total == len(found.found)
    is_reported = "e" in [one.definition.id for one in found.found]
    assert is_reported is (("allowed", "Gamma") in parameters and seen_by in {"acme", "gamma"})


@pytest.mark.parametrize(
    "sort", ["id", "-id", "precedence", "-precedence,-id", "-aging_s,title"]
)
async def test_pages_hold_everything_once_and_count_exactly(both, sort):
    await define_many(both)
    whole = await both.ids("insight", ("sort", sort))
    pages, totals = await both.pages("insight", ("sort", sort), ("limit", "2"))
    assert [one for page in pages for one in page] == whole
    assert [len(page) for page in pages] == [2, 2, 1]
    assert totals == {5}


async def test_pages_are_stable_while_others_insert(both):
    await define_many(both)
    query = parse_list("insight", [("limit", "2")], seen_by=None).query
    first = await both.store.list(query)
    await both.define(Insight(id="0"), Insight(id="bb"))
    given = [("limit", "9"), ("cursor", cursor_of(query.sorts, first.last))]
    rest = await both.store.list(parse_list("insight", given, seen_by=None).query)
    assert [one.definition.id for one in rest.found] == ["bb", "c", "d", "e"]
    assert rest.total == 7


@pytest.mark.parametrize(
    ("seen_by", "ids"), [("acme", "abcde"), ("beta", "abde"), ("gamma", "abe"), (None, "abcde")]
)
async def test_a_customer_is_given_only_what_it_sees(both, seen_by, ids):
    await define_many(both)
    found = [await both.store.get("insight", one, seen_by=seen_by) for one in "abcdef"]
    assert "".join(one.definition.id for one in found if one) == ids
    await both.define(Customer(id="acme"))
    assert bool(await both.store.get("customer", "acme", seen_by=seen_by)) is (
        seen_by in {"acme", None}
    )
    assert bool(await both.store.get("pool", "gpu", seen_by=seen_by)) is (seen_by is None)


@pytest.mark.parametrize(
    ("seen_by", "ids"), [("acme", "abcde"), ("beta", "abde"), ("gamma", "abe"), (None, "abcde")]
)
async def test_a_customer_sees_and_counts_only_what_it_may(both, seen_by, ids):
    await define_many(both)
    pages, totals = await both.pages("insight", ("limit", "2"), seen_by=seen_by)
    assert [one for page in pages for one in page] == list(ids)
    assert totals == {len(ids)}
    assert await both.ids("pool", seen_by="acme") == []
    assert await both.ids("pool") == ["gpu"]


async def test_customers_are_their_own_to_see(both):
    await both.define(ACME, Customer(id="beta"))
    assert await both.ids("customer", seen_by="acme") == ["acme"]


async def test_a_template_comes_back_as_it_was_written(both):
    template = AgendaTemplate(
        id="t",
        params={"z": {"type": "string"}, "a": {"type": "object", "default": {"y": 1, "b": 2}}},
        agenda={"title": "@<z>", "operations": [{"z": 1, "a": None}], "big": 10**25},
    )
    [stored] = await both.define(template)
    assert stored.definition == template
    assert [*stored.definition.params] == ["z", "a"]
    assert await both.ids("template", ("agenda.title", "@<z>")) == ["t"]


async def test_templates_are_found_by_what_their_customers_call_them(both):
    owned = [AgendaTemplate(id=f"t@{one}", owner=one, agenda={}) for one in ("acme", "beta")]
    await both.define(*owned, AgendaTemplate(id="u", agenda={}), Customer(id="t"))
    assert await both.store.find_by_name("template", "t") == ["t@acme", "t@beta"]
    assert await both.store.find_by_name("template", "u") == ["u"]
    assert await both.store.find_by_name("template", "none") == []


def by(customer_id: str | None) -> Author:
    return Author(
        principal=Principal(f"key:{customer_id}", customer_id, frozenset({Role.OPERATE})),
        request_id="r1",
    )


def template_of(owner: str, name: str, title: str = "") -> AgendaTemplate:
    return AgendaTemplate(id=name, owner=owner, title=title, agenda={})


async def test_a_customer_has_no_more_templates_than_it_may_and_another_is_not_hurt(limited):
    for name in "ab":
        await limited.store.change([put(template_of("acme", name))], by("acme"))
    with pytest.raises(LimitError, match=r"'acme' has 2 templates.*POP_MAX_TEMPLATES"):
        await limited.store.change([put(template_of("acme", "c"))], by("acme"))
    assert await limited.store.get("template", "c") is None
    await limited.store.change([put(template_of("acme", "a", "new"))], by("acme"))
    await limited.store.change([remove("template", "b")], by("acme"))
    await limited.store.change([put(template_of("acme", "c"))], by("acme"))
    await limited.store.change([put(template_of("beta", "d"))], by("beta"))
    for name in "efg":
        await limited.store.change([put(template_of("acme", name))], by(None))


async def test_a_customer_has_no_more_schedules_than_it_may(limited):
    def schedule(name: str, owner: str = "acme") -> Schedule:
        operations = [{"name": "only", "type": "noop"}]
        submission = {"customer_id": owner, "operations": operations}
        return Schedule(id=name, owner=owner, trigger={"every_s": 60}, submission=submission)

    await limited.store.change([put(schedule("a"))], by("acme"))
    with pytest.raises(LimitError, match=r"'acme' has 1 schedules.*POP_MAX_SCHEDULES"):
        await limited.store.change([put(schedule("b"))], by("acme"))
    assert await limited.store.get("schedule", "b") is None
    await limited.store.change([put(schedule("d", "beta"))], by("beta"))
    await limited.store.change([put(template_of("acme", "t"))], by("acme"))


async def test_a_customer_changes_no_more_in_an_hour_than_it_may(limited):
    for number in range(LIMITS.changes_per_hour):
        change = put(template_of("acme", "a", f"{number}"))
        await limited.store.change([change], by("acme"))
    with pytest.raises(RateLimitError, match="changes in the last hour") as refused:
        await limited.store.change([put(template_of("acme", "a", "more"))], by("acme"))
    assert refused.value.retry_after_s > 0
    await limited.store.change([put(template_of("beta", "b"))], by("beta"))
    await limited.store.change([put(template_of("acme", "a", "operator's"))], by(None))


async def test_versions_that_are_old_and_published_are_not_kept(limited):
    for number in range(5):
        await limited.store.change([put(template_of("acme", "a", f"{number}"))], by(None))
        await limited.taken()
    await limited.store.change([put(template_of("acme", "a", "last"))], by(None))
    kept = [await limited.store.version("template", "a", version) for version in range(1, 7)]
    assert [one and one.definition.title for one in kept] == [
        None,
        None,
        None,
        "3",
        "4",
        "last",
    ]
    assert (await limited.define(template_of("acme", "a", "next")))[0].version == 7
