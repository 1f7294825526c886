"""The routes of rules beside those of every definition."""

from typing import Final

from pop_stream.api.definitions.rules import RuleEndpoints
from pop_stream.api.http.access import Access, read_access
from pop_stream.api.http.errors import BODY_ERRORS, InvalidError
from pop_stream.api.http.route import READ_ERRORS, Route, RouteResponse
from pop_stream.api.owners import Owners
from pop_stream.api_models.rules import RuleProgress, RuleSample, RuleTest
from pop_stream.model.identity import Role

_PATH: Final = "/v1/rules/{rule_id}"


def rule_routes(owners: Owners, rules: RuleEndpoints) -> tuple[Route, ...]:
    """What became of a rule's records, and what one would lead to."""
    return (
        Route(
            "GET",
            f"{_PATH}/progress",
            rules.get_progress,
            "getRuleProgress",
            "What became of a rule's records, and why nothing is read, if so",
            (RouteResponse("The progress.", (RuleProgress,)),),
            READ_ERRORS,
            access=read_access(owners.defined("rule")),
        ),
        Route(
            "POST",
            f"{_PATH}/test",
            rules.post_test,
            "testRule",
            "Whether a record fits, and exactly what it would lead to; nothing is done",
            (RouteResponse("What it would lead to.", (RuleTest,)),),
            (*BODY_ERRORS, *READ_ERRORS, InvalidError),
            body_models=(RuleSample,),
            access=Access(role=Role.READ, operators_only=True),
        ),
    )
