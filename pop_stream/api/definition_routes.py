"""The routes of customers and insights."""

from pop_stream.api import models
from pop_stream.api.access import reading
from pop_stream.api.definitions import DefinitionLists
from pop_stream.api.owners import Owners
from pop_stream.api.questions import Explanations
from pop_stream.api.route import READ_ERRORS, Answer, Route
from pop_stream.core.definitions import Customer, Insight


def definition_routes(
    owners: Owners, definitions: DefinitionLists, explanations: Explanations
) -> tuple[Route, ...]:
    """What is defined, and how it goes."""
    return (*_lists(definitions), *_questions(owners, explanations))


def _lists(definitions: DefinitionLists) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/insights",
            definitions.get_insights,
            "listInsights",
            "All insights in force, by id",
            (Answer("The insights.", (list[Insight],)),),
            access=reading(),
        ),
        Route(
            "GET",
            "/v1/customers",
            definitions.get_customers,
            "listCustomers",
            "All customers that are defined, by id; any other has the defaults",
            (Answer("The customers.", (list[Customer],)),),
            access=reading(),
        ),
    )


def _questions(owners: Owners, explanations: Explanations) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/insights/{insight_id}/queue",
            explanations.get_queue,
            "getInsightQueue",
            "What waits in an insight, whose it is, and how fast it goes",
            (Answer("The queue.", (models.QueueView,)),),
            READ_ERRORS,
            access=reading(owners.insight),
        ),
    )
