"""Customers, pools and insights as they are defined, and all definitions in force.

Also their form as records of `pop.definitions`, and which need which.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from pop_stream.model.admission import ACCEPTED, AdmissionFields, Labels, PayloadFields
from pop_stream.model.agenda import CallbackFormat, CallbackUrl, Id
from pop_stream.model.api_keys import ApiKey
from pop_stream.model.errors import DefinitionError, Issue, UnreadableRecordError
from pop_stream.model.identity import Ownership
from pop_stream.model.ids import INSIGHT_ID_LENGTH, TOPIC_SAFE_PATTERN, CustomerId, InsightId
from pop_stream.model.insight_options import HealthScaling, Ranker
from pop_stream.model.json_types import WHOLE_NUMBER
from pop_stream.model.references import find as find_references
from pop_stream.model.retry import Backoff
from pop_stream.model.schedule import Schedule
from pop_stream.model.sharing import SharedDefinition
from pop_stream.model.template import AgendaTemplate

MAX_IN_FLIGHT: Final = 1_000_000_000
"""More than any cap needs to be."""

MAX_DEFINITION_BYTES: Final = 512 * 1024
"""Most bytes of one definition, as JSON: it is one record, and every process holds all."""

AlgorithmName = Literal["weighted_fair", "round_robin", "fifo"]

GroupType = Literal["consumer", "share"]
"""Kafka's word for how the members of a group read a topic."""

InsightKey = Annotated[
    str, StringConstraints(pattern=TOPIC_SAFE_PATTERN, max_length=INSIGHT_ID_LENGTH)
]


class Customer(BaseModel):
    """A tenant. One that is not defined has these defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Id
    title: str = ""
    weight: Annotated[float, Field(ge=1e-3, le=1e6)] = Field(
        default=1.0, description="Share of an insight relative to other backlogged customers."
    )
    max_in_flight: Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT), WHOLE_NUMBER] | None = Field(
        default=None, description="Most agendas emitted and not settled, per insight."
    )
    rate_per_s: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="Most agendas emitted per second, per insight."
    )
    burst: Annotated[int, Field(ge=1, le=1_000_000), WHOLE_NUMBER] = Field(
        default=1, description="With rate_per_s: most agendas at once after a rest."
    )
    max_submit_per_s: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="Most agendas it may submit per second, however they come."
    )
    submit_burst: Annotated[int, Field(ge=1, le=1_000_000), WHOLE_NUMBER] = Field(
        default=100, description="With max_submit_per_s: most at once after a rest."
    )
    max_ready: Annotated[int, Field(ge=1, le=1_000_000_000), WHOLE_NUMBER] | None = Field(
        default=None, description="Most ready agendas, of all insights together."
    )
    paused: bool = Field(default=False, description="Keeps its backlog, emits nothing of it.")
    callback_url: CallbackUrl | None = Field(
        default=None,
        description="Notified, signed, how each agenda ended that names none itself.",
    )
    callback_format: CallbackFormat = Field(
        default="json", description="As what that is sent, unless the agenda says so itself."
    )
    labels: Labels = Field(
        default=(), description="What insights and templates may need of it, as clearances."
    )
    pool: Id | None = Field(
        default=None, description="Only insights of this resource pool take its agendas."
    )
    default_insight: InsightKey | None = Field(
        default=None, description="Takes those of its agendas that fit no insight's mappers."
    )
    submitters: Annotated[tuple[Id, ...], Field(max_length=100)] = Field(
        default=(),
        description="Customers that may submit in its name what goes to insights of theirs.",
    )

    @property
    def ownership(self) -> Ownership:
        """A customer's definition is the customer's own to see."""
        return Ownership(self.id)


class ResourcePool(BaseModel):
    """Capacity that several insights share; what one does not use is lent to the others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Id
    title: str = ""
    max_in_flight: Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT), WHOLE_NUMBER] = Field(
        description="Most agendas emitted and not settled, of all its insights together."
    )
    divided_among: Literal["insights", "customers"] = Field(
        default="insights",
        description="Insights, each by its pool weight, or customers, as if they were one.",
    )


class Mappers(BaseModel):
    """What an insight takes: an agenda fits if any value of any mapper fits, ignoring case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    operation_names: tuple[str, ...] = ()
    operation_types: tuple[str, ...] = ()
    params: tuple[Annotated[str, StringConstraints(pattern=r"^[^=]+=.*$")], ...] = Field(
        default=(), description="`key=value`, compared with agenda, then operation params."
    )


class Insight(SharedDefinition, AdmissionFields, PayloadFields):
    """A class of work with a topic of its own."""

    id: InsightKey
    title: str = ""
    mappers: Mappers = Mappers()
    precedence: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000), WHOLE_NUMBER] = (
        Field(default=0, description="Of several insights that fit, the highest wins.")
    )
    algorithm: AlgorithmName = "weighted_fair"
    ranker: Ranker | None = Field(
        default=None, description="Orders a customer's own agendas that name no rank."
    )
    aging_s: Annotated[float, Field(gt=0, le=86_400)] | None = Field(
        default=None,
        description="If set, priorities are strict across customers, and this long a wait "
        "is worth one priority; if not, priority orders only a customer's own agendas.",
    )
    group_type: GroupType = Field(
        default="consumer",
        description="Of its pullers' group: `consumer` gives each member partitions of its "
        "own, `share` any member any agenda, so there may be more pullers than partitions.",
    )
    partitions: Annotated[int, Field(ge=1, le=1000), WHOLE_NUMBER] = Field(
        default=4,
        description="Of the insight's topic; most members of a consumer group that get work. "
        "Must be 1 with a share group, which gives members of several some of them only.",
    )
    target: Annotated[int, Field(ge=1, le=100_000), WHOLE_NUMBER] | Literal["auto"] = Field(
        default="auto", description="Unclaimed agendas a refill aims at."
    )
    low_water: Annotated[int, Field(ge=1, le=100_000), WHOLE_NUMBER] | None = Field(
        default=None,
        description="Fewer unclaimed than this start a refill; unset: 3/4 of target.",
    )
    wanted_wait_ms: Annotated[int, Field(ge=1, le=60_000), WHOLE_NUMBER] = Field(
        default=50, description="With target auto: how long an emitted agenda should wait."
    )
    max_in_flight: Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT), WHOLE_NUMBER] | None = Field(
        default=None, description="Most agendas emitted and not settled."
    )
    companions: Annotated[int, Field(ge=0, le=100), WHOLE_NUMBER] = Field(
        default=0, description="How many more with its `batch_key` one that is chosen brings."
    )
    max_ready: Annotated[int, Field(ge=1, le=1_000_000_000), WHOLE_NUMBER] | None = Field(
        default=None,
        description="Most ready agendas, of all customers; twice as many of priority 1.",
    )
    paused: bool = Field(default=False, description="Keeps its backlog, emits nothing of it.")
    health: HealthScaling | None = Field(
        default=None, description="If set, failed and lost attempts lower its cap in flight."
    )
    pool: Id | None = Field(
        default=None, description="Its resource pool; fixed once work was placed."
    )
    pool_weight: Annotated[float, Field(ge=1e-3, le=1e6)] = Field(
        default=1.0, description="Share of the pool relative to its other insights."
    )
    pool_minimum: Annotated[int, Field(ge=0, le=MAX_IN_FLIGHT), WHOLE_NUMBER] = Field(
        default=0, description="In flight that it is given before any of the pool is shared."
    )
    lease_ms: Annotated[int, Field(ge=1_000, le=86_400_000), WHOLE_NUMBER] = Field(
        default=60_000, description="A claimed agenda that is silent this long is reclaimed."
    )
    max_attempts: Annotated[int, Field(ge=1, le=100), WHOLE_NUMBER] = Field(
        default=3, description="Attempts before a retryable failure is final."
    )
    backoff: Backoff = Field(
        default=Backoff(), description="Between attempts, unless the agenda has its own."
    )
    wanted_drain_s: Annotated[float, Field(ge=1, le=604_800)] = Field(
        default=60.0,
        description="Within it what waits should be worked off: how many pullers are wanted.",
    )
    puller_runners: Annotated[int, Field(ge=1, le=10_000), WHOLE_NUMBER] = Field(
        default=8,
        description="Agendas that one puller runs at a time, as its POP_PULLER_CONCURRENCY.",
    )

    def __hash__(self) -> int:
        """By its id: schemas have no hash."""
        return hash(self.id)

    @model_validator(mode="after")
    def _share_group_reads_one_partition(self) -> "Insight":
        if self.group_type == "share" and self.partitions != 1:
            msg = (
                f"partitions {self.partitions} with group_type share: a puller would be given "
                "agendas of some partitions only; set partitions to 1"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _low_water_is_below_target(self) -> "Insight":
        if (
            self.target != "auto"
            and self.low_water is not None
            and self.low_water > self.target
        ):
            msg = (
                f"low_water {self.low_water} is above target {self.target}: no refill would "
                "ever end; lower low_water or raise target"
            )
            raise ValueError(msg)
        return self


Definition = Customer | Insight | ResourcePool | AgendaTemplate | Schedule

Kind = Literal["customer", "insight", "pool", "template", "schedule"]

KINDS: Final[Mapping[Kind, type[Definition]]] = {
    "customer": Customer,
    "insight": Insight,
    "pool": ResourcePool,
    "template": AgendaTemplate,
    "schedule": Schedule,
}
"""What may be defined, by the word that keys and tables use for it."""

CUSTOMERS_KINDS: Final[frozenset[Kind]] = frozenset({"template", "schedule"})
"""What customers define for themselves, under ids of their own."""


@dataclass(frozen=True, slots=True)
class VersionedTemplate:
    """A template and which version of it this is; agendas remember both."""

    template: AgendaTemplate
    version: int


DefinitionChange = tuple[str, Definition | None, int]
"""Key, content and version of one change; None is a removal."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """All definitions in force; a change yields a new one.

    Attributes:
        version: Records of `pop.definitions` that were taken up; set by who reads it.
    """

    customers: Mapping[CustomerId, Customer] = field(default_factory=dict)
    insights: Mapping[InsightId, Insight] = field(default_factory=dict)
    pools: Mapping[str, ResourcePool] = field(default_factory=dict)
    templates: Mapping[str, VersionedTemplate] = field(default_factory=dict)
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    version: int = 0

    @property
    def has_quotas(self) -> bool:
        """Whether it matters how much is ready of any customer, or in any insight."""
        return any(one.max_ready is not None for one in self.customers.values()) or any(
            one.max_ready is not None for one in self.insights.values()
        )

    def all(self) -> tuple[Definition, ...]:
        """Every definition, those that others need first."""
        templates = (one.template for one in self.templates.values())
        pools, insights = self.pools.values(), self.insights.values()
        customers, schedules = self.customers.values(), self.schedules.values()
        return (*pools, *insights, *customers, *templates, *schedules)

    def customer(self, customer_id: CustomerId) -> Customer:
        """The customer's definition, or the defaults for one that has none."""
        return self.customers.get(customer_id) or Customer(id=customer_id)

    def routing_key(self, insight_id: str) -> bytes:
        """What decides the partition of `pop.ready`: the insight, or the pool it shares.

        So one scheduler decides for all insights of a pool, as for all of an insight.
        """
        insight = self.insights.get(InsightId(insight_id))
        pool = insight.pool if insight else None
        return f"pool/{pool}".encode() if pool else insight_id.encode()

    def updated(
        self, key: str, definition: Definition | None, *, version: int = 0
    ) -> "Definitions":
        """With one definition put in force, or with None removed; an unknown kind is ignored.

        Args:
            key: `kind/id`, as the records of `pop.definitions` are keyed.
            definition: The new content.
            version: Of the definition; 0 if it has none.
        """
        return self.with_changes([(key, definition, version)])

    def with_changes(self, changes: Iterable[DefinitionChange]) -> "Definitions":
        """As `updated` for each in turn; what is defined is copied once, not once for each."""
        changed: dict[str, Any] = {}
        for key, definition, version in changes:
            kind, _, name = key.partition("/")
            model = KINDS.get(cast("Kind", kind))
            if model is None or not isinstance(definition, model | None):
                continue
            of_kind = f"{kind}s"
            if of_kind not in changed:
                changed[of_kind] = dict(getattr(self, of_kind))
            kept = changed[of_kind]
            # What is replaced comes last, as it does for who reads the compacted topic anew.
            kept.pop(name, None)
            if isinstance(definition, AgendaTemplate):
                kept[name] = VersionedTemplate(definition, version)
            elif definition is not None:
                kept[name] = definition
        return replace(self, **changed) if changed else self

    def decides_like(self, other: "Definitions") -> bool:
        """Whether nothing was changed between the two but templates and schedules."""
        return (
            self.customers is other.customers
            and self.insights is other.insights
            and self.pools is other.pools
        )


_API_KEY: Final = "key/"


def kind_of(definition: Definition) -> Kind:
    """The word for what kind of definition this is."""
    return next(kind for kind, model in KINDS.items() if isinstance(definition, model))


def definition_key(definition: Definition) -> str:
    """The record key of a definition: `kind/id`."""
    return f"{kind_of(definition)}/{definition.id}"


def decode_definition(key: str, value: bytes | None) -> Definition | None:
    """The definition in one record of `pop.definitions`; None for a tombstone.

    Fields that a newer version has added are ignored: without the rest there would be
    no definition at all.

    Raises:
        UnreadableRecordError: If the kind is unknown or the value does not fit it.
    """
    if value is None:
        return None
    kind, _, name = key.partition("/")
    model = KINDS.get(cast("Kind", kind))
    if model is None:
        msg = f"no kind of definition is called {kind!r}; use one of {', '.join(KINDS)}"
        raise UnreadableRecordError(msg)
    try:
        definition = model.model_validate_json(value, extra="ignore", context=ACCEPTED)
    except ValidationError as error:
        raise UnreadableRecordError(str(error)) from None
    if definition.id != name:
        msg = f"the record's key says {name!r} but its value says {definition.id!r}"
        raise UnreadableRecordError(msg)
    return definition


def encode_definition(definition: Definition) -> bytes:
    """The definition as JSON, without fields left at their defaults.

    Every writer encodes with it: the store, after patches are merged, and provisioning.

    Raises:
        DefinitionError: If it is larger than a definition may be.
    """
    encoded = definition.model_dump_json(exclude_defaults=True).encode()
    if len(encoded) > MAX_DEFINITION_BYTES:
        kind = kind_of(definition)
        message = (
            f"a {kind} may hold {MAX_DEFINITION_BYTES:,} bytes at most, with all that earlier "
            "requests put in; make it smaller, or several of it"
        )
        raise DefinitionError(kind, [Issue(kind, f"{len(encoded)} bytes", message)])
    return encoded


def is_api_key(key: str) -> bool:
    """Whether a record of `pop.definitions` with this key holds an API key."""
    return key.startswith(_API_KEY)


def api_key_record(key: ApiKey) -> bytes:
    """An API key as the value of a record: all of it, which is never its secret."""
    return key.model_dump_json(exclude_none=True).encode()


def decode_api_key(key: str, value: bytes | None) -> ApiKey | None:
    """The API key that a record holds; None for a tombstone.

    Raises:
        UnreadableRecordError: If it is none, or not the one that the record's key names.
    """
    if value is None:
        return None
    try:
        known = ApiKey.model_validate_json(value, extra="ignore")
    except ValidationError as error:
        raise UnreadableRecordError(str(error)) from None
    if known.id != key.removeprefix(_API_KEY):
        msg = f"the record's key is {key!r} but its value is key {known.id!r}"
        raise UnreadableRecordError(msg)
    return known


def references_of(definition: Definition) -> Iterator[tuple[str, str]]:
    """Fields of a definition and the keys they name, which must be defined for it to work."""
    match definition:
        case Customer(pool=pool, default_insight=insight):
            if pool is not None:
                yield "pool", f"pool/{pool}"
            if insight is not None:
                yield "default_insight", f"insight/{insight}"
        case Insight(pool=pool):
            if pool is not None:
                yield "pool", f"pool/{pool}"
        case _:
            pass  # pools, templates and schedules need nothing


def deletion_blocked_by(definition: Definition) -> list[str]:
    """Keys of what may not be deleted as long as this definition is there.

    An owner, or the customer of agendas that are made of it, need not be defined: any customer
    has the defaults. But once it is, its definition is not taken away under them.
    """
    keys = [key for _, key in references_of(definition)]
    if isinstance(definition, SharedDefinition) and definition.owner is not None:
        keys.append(f"customer/{definition.owner}")
    if isinstance(definition, AgendaTemplate | Schedule):
        made = definition.submission if isinstance(definition, Schedule) else definition.agenda
        customer_id = made.get("customer_id")
        if isinstance(customer_id, str) and not find_references(customer_id):
            keys.append(f"customer/{customer_id}")
    return sorted(set(keys))
