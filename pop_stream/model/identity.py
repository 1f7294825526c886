"""Who asks, whose an object is, and the one rule that decides between them.

A caller is a customer, or an operator who speaks for all of them. What it may do at all is
said by its roles; which objects it may do it to is said by their owners and visibility:

| the object is         | look at it | change it | lacking the role, it is |
|-----------------------|------------|-----------|-------------------------|
| the caller's own      | yes        | yes       | forbidden               |
| global, or allowed it | yes        | no        | hidden                  |
| anyone else's         | no         | no        | hidden                  |

What is hidden is answered exactly as what does not exist. To an operator every object is its
own.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Literal

from pop_stream.model.errors import ForbiddenError, NotFoundError

Visibility = Literal["owner", "allowed", "global"]
"""Who sees an object: its owner alone, named customers as well, or everyone."""


class Role(StrEnum):
    """What a caller may do; `admin`, which only operators can have, stands for all."""

    SUBMIT = "submit"
    PULL = "pull"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


ALL_ROLES: Final = frozenset(Role)


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose an object is.

    Attributes:
        owner: A customer's id; None belongs to the operators.
        allowed: With visibility `allowed`, who else sees it: ids in `casefold`.
    """

    owner: str | None
    visibility: Visibility = "owner"
    allowed: frozenset[str] = frozenset()

    def is_seen_by(self, customer_id: str) -> bool:
        """Whether the object exists, as far as this customer is concerned."""
        if self.owner == customer_id or self.visibility == "global":
            return True
        return self.visibility == "allowed" and customer_id.casefold() in self.allowed


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller whose word has been checked.

    Attributes:
        name: Of the key or the token's subject, for logs and the audit log.
        customer_id: Whom it speaks for; None is an operator, who speaks for everyone.
        roles: As granted. A customer's `admin` counts for nothing.
    """

    name: str
    customer_id: str | None
    roles: frozenset[Role]

    @property
    def is_operator(self) -> bool:
        """Whether it speaks for every customer."""
        return self.customer_id is None

    def has_role(self, role: Role) -> bool:
        """Whether it has the role, be it through `admin`."""
        if self.is_operator:
            return role in self.roles or Role.ADMIN in self.roles
        return role in self.roles and role is not Role.ADMIN

    def speaks_for(self, customer_id: str | None) -> bool:
        """Whether it may act in the customer's name; None stands for the operators."""
        return self.is_operator or self.customer_id == customer_id

    def sees(self, what: Ownership) -> bool:
        """Whether the object exists, as far as this caller is concerned."""
        return self.customer_id is None or what.is_seen_by(self.customer_id)


ANYONE: Final = Principal("anyone", None, ALL_ROLES)
"""Every caller of a process that does not ask who calls."""


class AccessDecision(Enum):
    """What the rule says of one caller, one object and one deed."""

    GRANTED = "granted"
    FORBIDDEN = "forbidden"
    HIDDEN = "hidden"


def decide(
    principal: Principal, role: Role, what: Ownership | None, *, changes: bool = False
) -> AccessDecision:
    """The rule.

    Args:
        principal: Who asks.
        role: What the deed needs.
        what: Whose the object is; None if there is none.
        changes: Whether the deed needs the object to be the caller's own.
    """
    if what is None or not principal.sees(what):
        return AccessDecision.HIDDEN
    is_own = principal.speaks_for(what.owner)
    if principal.has_role(role) and (is_own or not changes):
        return AccessDecision.GRANTED
    return AccessDecision.FORBIDDEN if is_own else AccessDecision.HIDDEN


def require_role(principal: Principal, role: Role, *, operators_only: bool = False) -> None:
    """Check a deed that is not done to one object.

    Raises:
        ForbiddenError: If the caller may not do it.
    """
    if operators_only and not principal.is_operator:
        msg = "only an operator may do this, and this caller speaks for a customer"
        raise ForbiddenError(msg)
    if not principal.has_role(role):
        msg = f"this needs the role {role.value!r}, which the caller does not have"
        raise ForbiddenError(msg)


def require_access(
    principal: Principal,
    role: Role,
    what: Ownership | None,
    *,
    named: tuple[str, str],
    changes: bool = False,
) -> None:
    """Check a deed that is done to one object.

    Args:
        principal: Who asks.
        role: What the deed needs.
        what: Whose the object is; None if there is none.
        named: Kind and id of the object, as the caller named it.
        changes: Whether the deed needs the object to be the caller's own.

    Raises:
        NotFoundError: If it does not exist, or not for this caller.
        ForbiddenError: If it is the caller's own, but the role is missing.
    """
    verdict = decide(principal, role, what, changes=changes)
    if verdict is AccessDecision.HIDDEN:
        raise NotFoundError(*named)
    if verdict is not AccessDecision.GRANTED:
        require_role(principal, role)
