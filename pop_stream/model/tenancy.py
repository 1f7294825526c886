"""Ids that customers choose: each customer has a name space of its own.

What customer acme calls `order-7` is `order-7@acme` everywhere inside: in records, rows and
logs. So what anyone chooses says nothing about what others chose, no customer can take an id
from another, and no part has to look anything up to keep them apart. Operators choose ids for
all, as they are; the ids of what they define or submit for a customer have no mark.
"""

from collections.abc import Sequence
from typing import Final

from pop_stream.model.errors import Issue
from pop_stream.model.identity import Principal

_MARK: Final = "@"


def qualified_id(named: str, customer_id: str | None) -> str:
    """The id inside of what a customer calls so; an operator (None) means what it says."""
    if customer_id is None or _MARK in named:
        return named
    return f"{named}{_MARK}{customer_id}"


def display_id(object_id: str, customer_id: str | None) -> str:
    """What a customer calls an object; others, and operators, are shown the id inside."""
    if customer_id is None:
        return object_id
    return object_id.removesuffix(f"{_MARK}{customer_id}")


def candidate_ids(named: str, principal: Principal) -> Sequence[str]:
    """The ids that a caller may mean, likeliest first: a customer's own come before others."""
    own = qualified_id(named, principal.customer_id)
    return (own,) if own == named else (own, named)


def is_qualified(object_id: str) -> bool:
    """Whether the id says which customer chose it."""
    return _MARK in object_id


def customer_of_id(object_id: str) -> str | None:
    """The customer that chose the id, if it says so."""
    return object_id.partition(_MARK)[2] or None


def resolve_unique(named: str, candidates: Sequence[str]) -> str:
    """What an operator means by a name without a mark: the only object that is called so.

    Args:
        named: What the operator says.
        candidates: The ids of all objects that someone calls so.
    """
    return named if named in candidates or len(candidates) != 1 else candidates[0]


def foreign_id_issue(object_id: str | None, owner: str | None) -> Issue | None:
    """What is wrong with an object whose id says that another customer chose it, if it does."""
    named, mark, customer_id = (object_id or "").partition(_MARK)
    if not mark or customer_id == owner:
        return None
    message = (
        f"what follows the {_MARK} must be the object's own customer; send {named!r} alone"
    )
    return Issue("id", object_id or "", message)
