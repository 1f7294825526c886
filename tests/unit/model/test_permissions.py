"""The one rule: who may do what to whose objects."""

import pytest

from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.errors import ForbiddenError, NotFoundError
from pop_stream.model.identity import (
    ALL_ROLES,
    ANYONE,
    AccessDecision,
    Ownership,
    Principal,
    Role,
    decide,
    require_access,
    require_role,
)

OWN = Ownership("acme")
FOREIGN = Ownership("beta")
GLOBAL = Ownership("beta", "global")
ALLOWED = Ownership("beta", "allowed", frozenset({"acme"}))
ALLOWED_TO_OTHERS = Ownership("beta", "allowed", frozenset({"gamma"}))
OPERATORS = Ownership(None)

READER = Principal("k", "acme", frozenset({Role.READ}))
PULLER = Principal("k", "acme", frozenset({Role.PULL}))
OPERATOR = Principal("k", None, frozenset({Role.READ}))

GRANTED, FORBIDDEN, HIDDEN = (
    AccessDecision.GRANTED,
    AccessDecision.FORBIDDEN,
    AccessDecision.HIDDEN,
)


@pytest.mark.parametrize(
    ("what", "may_read", "may_change", "without_role"),
    [
        (OWN, GRANTED, GRANTED, FORBIDDEN),
        (GLOBAL, GRANTED, HIDDEN, HIDDEN),
        (ALLOWED, GRANTED, HIDDEN, HIDDEN),
        (ALLOWED_TO_OTHERS, HIDDEN, HIDDEN, HIDDEN),
        (FOREIGN, HIDDEN, HIDDEN, HIDDEN),
        (OPERATORS, HIDDEN, HIDDEN, HIDDEN),
        (None, HIDDEN, HIDDEN, HIDDEN),
    ],
)
def test_a_customer_and_an_object(what, may_read, may_change, without_role):
    assert decide(READER, Role.READ, what) is may_read
    assert decide(READER, Role.READ, what, changes=True) is may_change
    assert decide(PULLER, Role.READ, what) is without_role


@pytest.mark.parametrize("what", [OWN, FOREIGN, GLOBAL, ALLOWED, OPERATORS])
def test_to_an_operator_every_object_is_its_own(what):
    assert decide(OPERATOR, Role.READ, what, changes=True) is GRANTED
    assert decide(OPERATOR, Role.SUBMIT, what) is FORBIDDEN


def test_admin_stands_for_every_role_of_an_operator():
    assert all(Principal("k", None, frozenset({Role.ADMIN})).has_role(role) for role in Role)
    assert all(ANYONE.has_role(role) for role in Role)


def test_admin_of_a_customer_counts_for_nothing():
    granted = Principal("k", "acme", frozenset({Role.ADMIN, Role.READ}))
    assert [role for role in Role if granted.has_role(role)] == [Role.READ]
    everything = Principal("k", "acme", ALL_ROLES)
    assert not everything.has_role(Role.ADMIN)


@pytest.mark.parametrize("case", ["acme", "ACME", "Acme"])
def test_allowed_customers_are_compared_ignoring_case(case):
    insight = Insight(id="i", owner="beta", visibility="allowed", allowed=(case,))
    assert READER.sees(insight.ownership)


@pytest.mark.parametrize(
    ("insight", "seen"),
    [
        (Insight(id="i"), True),
        (Insight(id="i", visibility="owner"), False),
        (Insight(id="i", owner="acme"), True),
        (Insight(id="i", owner="beta"), False),
        (Insight(id="i", owner="beta", visibility="global"), True),
        (Insight(id="i", owner="beta", allowed=("acme",)), False),
        (Customer(id="acme"), True),
        (Customer(id="beta"), False),
    ],
)
def test_definitions_say_who_sees_them(insight, seen):
    assert READER.sees(insight.ownership) is seen


def test_what_is_hidden_is_not_found_and_what_is_own_is_forbidden():
    require_access(READER, Role.READ, OWN, named=("agenda", "a1"))
    with pytest.raises(NotFoundError, match="no agenda with id 'a1'"):
        require_access(READER, Role.READ, FOREIGN, named=("agenda", "a1"))
    with pytest.raises(ForbiddenError, match="'operate'"):
        require_access(READER, Role.OPERATE, OWN, named=("agenda", "a1"))


def test_deeds_without_an_object_need_the_role_alone():
    require_role(READER, Role.READ)
    require_role(OPERATOR, Role.READ, operators_only=True)
    with pytest.raises(ForbiddenError, match="'submit'"):
        require_role(READER, Role.SUBMIT)
    with pytest.raises(ForbiddenError, match="only an operator"):
        require_role(READER, Role.READ, operators_only=True)
