"""Whom the objects belong to that paths name; the guard asks before any handler runs."""

from pop_stream.api.definitions.naming import ownership
from pop_stream.api.http.access import PathObject
from pop_stream.model.definitions import Kind
from pop_stream.model.identity import Ownership, Principal
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.model.tenancy import is_qualified, resolve_unique
from pop_stream.ports.dead_letters import DeadLetterStore
from pop_stream.ports.definitions import DefinitionSource, DefinitionStore
from pop_stream.ports.keys import KeyStore
from pop_stream.ports.summaries import LinkScope, SummaryReader


class Owners:
    """The owners of the objects that the API's paths name.

    Attributes:
        agenda: Belongs to the customer whose work it is.
        link: Belongs to whoever has an agenda in it; each sees its own part.
        insight: Belongs to whom its definition says.
        customer: Belongs to itself.
        key: Belongs to whom it speaks for.
        letter: A dead letter belongs to whom it is about; of many, to the operators alone.
    """

    def __init__(
        self,
        summaries: SummaryReader,
        definitions: DefinitionSource,
        store: DefinitionStore,
        keys: KeyStore,
        letters: DeadLetterStore,
    ) -> None:
        self._letters = letters
        self._keys = keys
        self._summaries = summaries
        self._store = store
        self._definitions = definitions
        self.agenda = PathObject(
            "agenda",
            "agenda_id",
            self._agenda,
            is_named_by_customers=True,
            canonical_id=self._agenda_called,
        )
        self.link = PathObject("link", "link_id", self._link)
        self.insight = PathObject("insight", "insight_id", self._insight)
        self.customer = PathObject("customer", "customer_id", self._customer)
        self.key = PathObject("key", "key_id", self._key)
        self.letter = PathObject("dead letter", "letter_id", self._letter)

    def defined(self, kind: Kind) -> PathObject:
        """A definition of the kind, read from the store and not from a copy of it."""

        async def owner(object_id: str, principal: Principal) -> Ownership | None:
            stored = await self._store.get(kind, object_id, seen_by=principal.customer_id)
            return ownership(stored) if stored else None

        return PathObject(
            kind,
            f"{kind}_id",
            owner,
            is_named_by_customers=kind == "template",
        )

    async def _agenda(self, agenda_id: str, _: Principal) -> Ownership | None:
        owners = await self._summaries.agenda_owners([agenda_id])
        customer_id = owners.get(agenda_id)
        return None if customer_id is None else Ownership(customer_id or None)

    async def _agenda_called(self, named: str) -> str:
        """An operator may leave the customer out of an id where only one has chosen it."""
        if is_qualified(named):
            return named
        return resolve_unique(named, await self._summaries.find_by_name(named))

    async def _link(self, link_id: str, principal: Principal) -> Ownership | None:
        found = await self._summaries.link_versions([LinkScope(link_id, principal.customer_id)])
        return Ownership(principal.customer_id) if found else None

    async def _insight(self, insight_id: str, _: Principal) -> Ownership | None:
        insight = self._definitions.current.insights.get(InsightId(insight_id))
        return insight.ownership if insight else None

    async def _customer(self, customer_id: str, _: Principal) -> Ownership | None:
        customer = self._definitions.current.customers.get(CustomerId(customer_id))
        return customer.ownership if customer else None

    async def _key(self, key_id: str, _: Principal) -> Ownership | None:
        key = await self._keys.find(key_id)
        return key.ownership if key else None

    async def _letter(self, letter_id: str, _: Principal) -> Ownership | None:
        found = await self._letters.find(letter_id)
        return Ownership(found.letter.customer_id) if found else None
