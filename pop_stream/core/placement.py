"""Placement: which insight an agenda belongs to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pop_stream.core.agenda import Agenda
from pop_stream.core.definitions import Insight
from pop_stream.core.errors import Issue, SubmissionError
from pop_stream.core.ids import InsightId


@dataclass(frozen=True, slots=True)
class _Fit:
    insight: Insight
    specificity: int


class Placement:
    """The mappers of all insights, turned round: from a value to the insights that take it.

    A look-up costs the agenda's names, types and params, not the number of insights.
    """

    def __init__(self, insights: Iterable[Insight]) -> None:
        self._takers: dict[tuple[str, str], list[_Fit]] = {}
        for insight in insights:
            for key, specificity in _mapper_values(insight):
                self._takers.setdefault(key, []).append(_Fit(insight, specificity))

    def place(self, agenda: Agenda) -> InsightId:
        """Choose the agenda's insight.

        Of the insights that fit, one named by the agenda's param `defaultInsight` (id or
        title) wins; else the highest precedence, then the most specific mapper (params, then
        operation names, then operation types), then the id in alphabetical order.

        Raises:
            SubmissionError: If no insight fits.
        """
        fits = [fit for key in _agenda_values(agenda) for fit in self._takers.get(key, ())]
        if not fits:
            raise SubmissionError([_unplaceable(agenda)])
        wanted = str(agenda.params.get("defaultInsight") or "").casefold()
        best = min(
            fits,
            key=lambda fit: (
                not _is_called(fit.insight, wanted),
                -fit.insight.precedence,
                -fit.specificity,
                fit.insight.id,
            ),
        )
        return InsightId(best.insight.id)


def _is_called(insight: Insight, wanted: str) -> bool:
    return bool(wanted) and wanted in {insight.id.casefold(), insight.title.casefold()}


def _mapper_values(insight: Insight) -> Iterable[tuple[tuple[str, str], int]]:
    mappers = insight.mappers
    for text in mappers.params:
        yield ("param", text.casefold()), 3
    for text in mappers.operation_names:
        yield ("name", text.casefold()), 2
    for text in mappers.operation_types:
        yield ("type", text.casefold()), 1


def _agenda_values(agenda: Agenda) -> set[tuple[str, str]]:
    values = {("param", text) for text in _params(agenda.params)}
    for operation in agenda.operations:
        values.add(("name", operation.name.casefold()))
        values.add(("type", operation.type.casefold()))
        values.update(("param", text) for text in _params(operation.params))
    return values


def _params(params: Mapping[str, object]) -> Iterable[str]:
    for key, value in params.items():
        if isinstance(value, str | int | float):
            yield f"{key}={value}".casefold()


def _unplaceable(agenda: Agenda) -> Issue:
    types = sorted({operation.type for operation in agenda.operations})
    return Issue(
        "operations",
        ", ".join(types[:8]),
        "no insight takes these operation types, names or params; define an insight whose "
        "mappers name one of them, or correct the agenda",
    )
