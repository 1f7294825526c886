"""What a report says in any case: that its worker is alive, whatever can be looked up."""

from aiohttp import web

from pop_stream.api.pulls.leases import attempt_of
from pop_stream.core.values.identity import Principal, Role
from pop_stream.core.values.own_ids import candidate_ids
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.work import Hearsay


class SignsOfLife:
    """Passes on signs of life while it cannot be looked up whose an attempt is.

    An outage of the database is no worker's silence. The scheduler knows which attempts are
    out, so it judges; and it hears only of who may pull from its insight, so nobody keeps
    alive what is another customer's.

    Args:
        hearsay: Takes them to the schedulers.
        definitions: Tell which insights are whose.
    """

    def __init__(self, hearsay: Hearsay, definitions: DefinitionSource) -> None:
        self._hearsay = hearsay
        self._definitions = definitions

    def pass_on(self, request: web.Request, principal: Principal) -> None:
        """Pass on that the caller says it is at the attempt that the path names."""
        attempt = attempt_of(request.match_info["attempt"])
        if attempt is None or not principal.has_role(Role.PULL):
            return
        insights = [
            insight.id
            for insight in self._definitions.current.insights.values()
            if principal.speaks_for(insight.ownership.owner)
        ]
        for agenda_id in candidate_ids(request.match_info["agenda_id"], principal):
            self._hearsay.pass_on(agenda_id, attempt, insights)
