"""Customers, pools and insights as they are defined, and the set that is in force."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from pop_stream.core.agendas.agenda import CallbackUrl, Id
from pop_stream.core.definitions.sharing import SharedDefinition
from pop_stream.core.definitions.template import AgendaTemplate
from pop_stream.core.values.identity import Ownership
from pop_stream.core.values.ids import (
    INSIGHT_ID_LENGTH,
    TOPIC_SAFE_PATTERN,
    CustomerId,
    InsightId,
)
from pop_stream.core.values.numbers import WHOLE_NUMBER
from pop_stream.core.values.retry import Backoff

MAX_IN_FLIGHT: Final = 1_000_000_000
"""More than any cap needs to be."""

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
        default=None, description="Told, signed, how each agenda ended that names none itself."
    )
    pool: Id | None = Field(
        default=None, description="Only insights of this resource pool take its agendas."
    )
    default_insight: InsightKey | None = Field(
        default=None, description="Takes those of its agendas that fit no insight's mappers."
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


class Mappers(BaseModel):
    """What an insight takes: an agenda fits if any value of any mapper fits, ignoring case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    operation_names: tuple[str, ...] = ()
    operation_types: tuple[str, ...] = ()
    params: tuple[Annotated[str, StringConstraints(pattern=r"^[^=]+=.*$")], ...] = Field(
        default=(), description="`key=value`, compared with agenda, then operation params."
    )


class Insight(SharedDefinition):
    """A class of work with a topic of its own."""

    id: InsightKey
    title: str = ""
    mappers: Mappers = Mappers()
    precedence: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000), WHOLE_NUMBER] = (
        Field(default=0, description="Of several insights that fit, the highest wins.")
    )
    algorithm: AlgorithmName = "weighted_fair"
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


Definition = Customer | Insight | ResourcePool | AgendaTemplate

Kind = Literal["customer", "insight", "pool", "template"]

KINDS: Final[Mapping[Kind, type[Definition]]] = {
    "customer": Customer,
    "insight": Insight,
    "pool": ResourcePool,
    "template": AgendaTemplate,
}
"""What may be defined, by the word that keys and tables use for it."""


@dataclass(frozen=True, slots=True)
class VersionedTemplate:
    """A template and which version of it this is; agendas remember both."""

    template: AgendaTemplate
    version: int


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
    version: int = 0

    @property
    def has_quotas(self) -> bool:
        """Whether it matters how much is ready of any customer."""
        return any(one.max_ready is not None for one in self.customers.values())

    def all(self) -> tuple[Definition, ...]:
        """Every definition, those that others need first."""
        templates = (one.template for one in self.templates.values())
        pools, insights = self.pools.values(), self.insights.values()
        return (*pools, *insights, *self.customers.values(), *templates)

    def customer(self, customer_id: CustomerId) -> Customer:
        """The customer's definition, or the defaults for one that has none."""
        return self.customers.get(customer_id) or Customer(id=customer_id)

    def home(self, insight_id: str) -> bytes:
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
        kind, _, name = key.partition("/")
        match kind:
            case "customer" if definition is None or isinstance(definition, Customer):
                customers = _put(self.customers, CustomerId(name), definition)
                return replace(self, customers=customers)
            case "insight" if definition is None or isinstance(definition, Insight):
                insights = _put(self.insights, InsightId(name), definition)
                return replace(self, insights=insights)
            case "pool" if definition is None or isinstance(definition, ResourcePool):
                return replace(self, pools=_put(self.pools, name, definition))
            case "template" if definition is None or isinstance(definition, AgendaTemplate):
                found = VersionedTemplate(definition, version) if definition else None
                return replace(self, templates=_put(self.templates, name, found))
            case _:
                return self


K = TypeVar("K")
V = TypeVar("V")


def _put(items: Mapping[K, V], key: K, value: V | None) -> dict[K, V]:
    kept = {other: item for other, item in items.items() if other != key}
    return kept if value is None else {**kept, key: value}
