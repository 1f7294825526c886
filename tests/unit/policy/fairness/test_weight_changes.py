"""Weights that changed while tags were reckoned with others."""

import pytest

from pop_stream.policy.delta import FairnessState
from pop_stream.policy.fairness.flow import CustomerRegistry, Share


def known(*names, weight=1.0):
    shares = {name: Share(weight=weight) for name in names}
    customers = CustomerRegistry(lambda one: shares[one])
    for name in names:
        customers.join(name, 0.0)
    return customers, shares


def reweigh(customers, shares, name, weight):
    shares[name] = Share(weight=weight)
    return [*customers.refresh_shares()]


def test_the_weight_that_a_tag_is_reckoned_with_is_the_one_before_all_changes():
    customers, shares = known("ann", "bob")
    reweigh(customers, shares, "ann", 2.0)
    reweigh(customers, shares, "ann", 3.0)
    ann, bob = customers.flows.values()
    assert customers.are_reweighed
    assert (customers.weight(ann), customers.weight(bob)) == (1.0, 1.0)
    assert [*customers.drain_reweighed()] == [(ann, 1.0)]
    assert (customers.weight(ann), customers.are_reweighed) == (3.0, False)
    assert [*customers.drain_reweighed()] == []


def test_only_those_whose_share_is_another_one_are_named():
    customers, shares = known("ann", "bob")
    customers.flows["ann"].is_rate_limited = customers.flows["bob"].is_rate_limited = True
    [ann] = reweigh(customers, shares, "ann", 2.0)
    assert (ann.customer_id, ann.share.weight, ann.is_rate_limited) == ("ann", 2.0, False)
    assert customers.flows["bob"].is_rate_limited


def test_nobody_is_scaled_who_was_forgotten_meanwhile():
    customers, shares = known("ann", "bob")
    for name in ("ann", "bob"):
        reweigh(customers, shares, name, 2.0)
    del customers.flows["ann"]
    assert [flow.customer_id for flow, _ in customers.drain_reweighed()] == ["bob"]


@pytest.mark.parametrize(
    ("kept", "expected"), [(3.0, 3.0), (1.0, 1.0), (0.0, 1.0)], ids=["other", "same", "unknown"]
)
def test_a_weight_that_changed_before_a_restart_is_known_after_it(kept, expected):
    customers, _ = known("ann")
    ann = customers.flows["ann"]
    customers.restore(ann, FairnessState(tag=5.0, weight=kept))
    assert (ann.tag, customers.weight(ann)) == (5.0, expected)
    assert customers.are_reweighed == (expected != ann.share.weight)
