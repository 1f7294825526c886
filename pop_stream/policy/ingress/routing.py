"""Routing: which insight an agenda belongs to, and why."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pop_stream.model.agenda import Agenda
from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.errors import Issue, MissingDefinitionError, SubmissionError
from pop_stream.model.ids import CustomerId, InsightId

Mapper = Literal["params", "operation_names", "operation_types"]

PREFERRED_INSIGHT_PARAMS: Final = ("default_insight", "defaultInsight")
"""Params of an agenda that name the insight it would rather have, by id or title."""

_SPECIFICITY: Final[Mapping[Mapper, int]] = {
    "params": 3,
    "operation_names": 2,
    "operation_types": 1,
}

RoutingOutcome = Literal["chosen", "outranked", "other_pool", "no_match"]


@dataclass(frozen=True, slots=True)
class MapperMatch:
    """A value of a mapper that fits an agenda."""

    mapper: Mapper
    value: str


@dataclass(frozen=True, slots=True)
class RoutingCandidate:
    """How one insight compared in the choice.

    Attributes:
        matches: Values of its mappers that fit.
        specificity: Of its most specific match: 3 params, 2 names, 1 types, 0 none.
        is_wanted: Whether the agenda asks for it by name.
        why: The outcome in words.
    """

    insight_id: str
    outcome: RoutingOutcome
    matches: tuple[MapperMatch, ...]
    precedence: int
    specificity: int
    is_wanted: bool
    why: str


@dataclass(frozen=True, slots=True)
class _RouteMatch:
    insight: Insight
    match: MapperMatch
    is_for_all: bool

    @property
    def specificity(self) -> int:
        return _SPECIFICITY[self.match.mapper]


class InsightRouter:
    """Chooses insights by an index of their mappers: from a value to those that take it.

    A look-up costs the agenda's names, types and params, not the number of insights.

    Args:
        insights: All that are in force.
        customers: Those that are defined; any other has the defaults.
        defined_only: Whether agendas of any other are refused.
    """

    def __init__(
        self,
        insights: Iterable[Insight],
        customers: Mapping[CustomerId, Customer] | None = None,
        *,
        defined_only: bool = False,
    ) -> None:
        self._defined_only = defined_only
        self._insights = {insight.id: insight for insight in insights}
        self._customers = customers or {}
        self._by_value: dict[tuple[Mapper, str], list[_RouteMatch]] = {}
        for insight in self._insights.values():
            is_for_all = insight.effective_visibility == "global"
            for match in _mapper_values(insight):
                key = (match.mapper, match.value.casefold())
                self._by_value.setdefault(key, []).append(
                    _RouteMatch(insight, match, is_for_all)
                )

    def route(self, agenda: Agenda) -> InsightId:
        """Choose the agenda's insight.

        Of the insights that serve its customer, in its customer's pool if that has one, and
        that fit: one that the agenda names in its param `default_insight` (id or title) wins;
        else the highest precedence, then the most specific mapper (params, then operation
        names, then operation types), then the id in alphabetical order. If none fits, its
        customer's default insight takes it.

        Raises:
            MissingDefinitionError: If there is no insight for it, or its customer must be
                defined and is not.
        """
        customer = self._customers.get(CustomerId(agenda.customer_id))
        if customer is None and self._defined_only:
            raise MissingDefinitionError([_undefined_customer(agenda.customer_id)])
        preferred = _preferred_insight(agenda)
        fits = [
            fit
            for key in _agenda_values(agenda)
            for fit in self._by_value.get(key, ())
            if (fit.is_for_all or fit.insight.serves(agenda.customer_id))
            and _is_in_pool(fit.insight, customer)
        ]
        if fits:
            return InsightId(min(fits, key=lambda fit: _rank(fit, preferred)).insight.id)
        default = self._default(agenda, customer)
        if default is None:
            raise MissingDefinitionError([_no_insight(agenda)])
        return InsightId(default.id)

    def explain(self, agenda: Agenda) -> tuple[RoutingCandidate, ...]:
        """How every insight that serves the customer compared, the chosen one first."""
        customer = self._customers.get(CustomerId(agenda.customer_id))
        preferred, values = _preferred_insight(agenda), _agenda_values(agenda)
        try:
            chosen = self.route(agenda)
        except SubmissionError:
            chosen = None
        found = [
            _candidate(insight, values, preferred=preferred, chosen=chosen, customer=customer)
            for insight in self._insights.values()
            if insight.serves(agenda.customer_id)
        ]
        order: tuple[RoutingOutcome, ...] = ("chosen", "outranked", "other_pool", "no_match")
        return tuple(sorted(found, key=lambda one: (order.index(one.outcome), one.insight_id)))

    def _default(self, agenda: Agenda, customer: Customer | None) -> Insight | None:
        if customer is None or customer.default_insight is None:
            return None
        insight = self._insights.get(customer.default_insight)
        return insight if insight and insight.serves(agenda.customer_id) else None


def _rank(fit: _RouteMatch, preferred: str) -> tuple[bool, int, int, str]:
    """The sort key of a match; the least one wins."""
    insight = fit.insight
    return not _is_called(insight, preferred), -insight.precedence, -fit.specificity, insight.id


def _candidate(
    insight: Insight,
    values: set[tuple[Mapper, str]],
    *,
    preferred: str,
    chosen: str | None,
    customer: Customer | None,
) -> RoutingCandidate:
    matches = [
        match
        for match in _mapper_values(insight)
        if (match.mapper, match.value.casefold()) in values
    ]
    outcome = _outcome(insight, matches, chosen=chosen, customer=customer)
    return RoutingCandidate(
        insight_id=insight.id,
        outcome=outcome,
        matches=tuple(matches),
        precedence=insight.precedence,
        specificity=max((_SPECIFICITY[match.mapper] for match in matches), default=0),
        is_wanted=_is_called(insight, preferred),
        why=_why(insight, outcome, matches, chosen=chosen, customer=customer),
    )


def _outcome(
    insight: Insight,
    matches: list[MapperMatch],
    *,
    chosen: str | None,
    customer: Customer | None,
) -> RoutingOutcome:
    if insight.id == chosen:
        return "chosen"
    if not matches:
        return "no_match"
    return "outranked" if _is_in_pool(insight, customer) else "other_pool"


def _why(
    insight: Insight,
    outcome: RoutingOutcome,
    matches: list[MapperMatch],
    *,
    chosen: str | None,
    customer: Customer | None,
) -> str:
    fits = ", ".join(f"{match.mapper} {match.value!r}" for match in matches[:4])
    match outcome:
        case "chosen" if matches:
            return f"it fits by {fits}, and ranks first"
        case "chosen":
            return "nothing else fits, and it is the customer's default insight"
        case "outranked":
            return (
                f"it fits by {fits}, but {chosen} ranks before it: by the agenda's wish, then "
                "precedence, then specificity, then id"
            )
        case "other_pool":
            pool = customer.pool if customer else None
            return f"it fits by {fits}, but is in pool {insight.pool!r}, not {pool!r}"
        case _:
            return "no value of its mappers fits the agenda"


def _preferred_insight(agenda: Agenda) -> str:
    named = next(
        (agenda.params[one] for one in PREFERRED_INSIGHT_PARAMS if agenda.params.get(one)), ""
    )
    return str(named).casefold()


def _is_called(insight: Insight, preferred: str) -> bool:
    return bool(preferred) and preferred in {insight.id.casefold(), insight.title.casefold()}


def _is_in_pool(insight: Insight, customer: Customer | None) -> bool:
    return customer is None or customer.pool is None or customer.pool == insight.pool


def _mapper_values(insight: Insight) -> Iterator[MapperMatch]:
    mappers = insight.mappers
    yield from (MapperMatch("params", text) for text in mappers.params)
    yield from (MapperMatch("operation_names", text) for text in mappers.operation_names)
    yield from (MapperMatch("operation_types", text) for text in mappers.operation_types)


def _agenda_values(agenda: Agenda) -> set[tuple[Mapper, str]]:
    values: set[tuple[Mapper, str]] = {("params", text) for text in _params(agenda.params)}
    for operation in agenda.operations:
        values.add(("operation_names", operation.name.casefold()))
        values.add(("operation_types", operation.type.casefold()))
        values.update(("params", text) for text in _params(operation.params))
    return values


def _params(params: Mapping[str, object]) -> Iterable[str]:
    for key, value in params.items():
        if isinstance(value, str | int | float):
            yield f"{key}={value}".casefold()


def _undefined_customer(customer_id: str) -> Issue:
    return Issue(
        "customer_id",
        customer_id,
        "is not defined, and only defined customers may submit here; define the customer, or "
        "correct the id",
    )


def _no_insight(agenda: Agenda) -> Issue:
    types = sorted({operation.type for operation in agenda.operations})
    return Issue(
        "operations",
        ", ".join(types[:8]),
        "no insight takes these operation types, names or params; define an insight whose "
        "mappers name one of them, or correct the agenda",
    )
