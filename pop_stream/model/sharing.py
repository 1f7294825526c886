"""Whose a definition is, and which customers it serves."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from pop_stream.model.agenda import Id
from pop_stream.model.identity import Ownership, Visibility


class SharedDefinition(BaseModel):
    """What insights and templates say of who may use them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    owner: Id | None = Field(
        default=None, description="The customer it belongs to; without one, the operator's."
    )
    visibility: Visibility | None = Field(
        default=None,
        description="Who may use it: its owner, also those in `allowed`, or everyone. Unset: "
        "the owner if there is one, else everyone.",
    )
    allowed: tuple[Id, ...] = Field(
        default=(),
        max_length=10_000,
        description="With visibility allowed: customers that may use it; case is ignored.",
    )

    @property
    def effective_visibility(self) -> Visibility:
        """The visibility that holds when none is set, too."""
        return self.visibility or ("owner" if self.owner else "global")

    @property
    def ownership(self) -> Ownership:
        """Whose it is, and who sees it."""
        allowed = frozenset(one.casefold() for one in self.allowed)
        return Ownership(self.owner, self.effective_visibility, allowed)

    def as_seen_by(self, customer_id: str | None) -> Self:
        """What a customer, or an operator (None), is shown: who else may, the owner knows."""
        if customer_id in {None, self.owner}:
            return self
        own = tuple(one for one in self.allowed if one.casefold() == customer_id.casefold())
        return self.model_copy(update={"allowed": own})

    def serves(self, customer_id: str) -> bool:
        """Whether the customer's work may use it."""
        is_for_all = self.effective_visibility == "global"
        return is_for_all or self.ownership.is_seen_by(customer_id)
