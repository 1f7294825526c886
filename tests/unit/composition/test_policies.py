"""Policies by entry point: what cannot be loaded lets nothing start."""

from importlib.metadata import EntryPoint

import pytest

from pop_stream.composition import policies
from pop_stream.composition.policies import (
    GROUP,
    RANKERS,
    admission_policies,
    operator_rankers,
)
from pop_stream.operations.errors import UsageError
from pop_stream.policy.ingress.policies import BUILT_IN, Defer
from pop_stream.settings import Settings


class Slow:
    """An operator's policy."""

    def decide(self, request):
        return Defer(f"slow: {request}")


READY = Slow()
NO_POLICY = object()


class Broken:
    def __init__(self):
        msg = "no config"
        raise RuntimeError(msg)


@pytest.fixture
def installed(monkeypatch):
    names = {"slow": "Slow", "ready": "READY", "odd": "NO_POLICY", "broken": "Broken"}
    found = [EntryPoint(one, f"{__name__}:{what}", GROUP) for one, what in names.items()]
    found.append(EntryPoint("absent", "no_such_module:Policy", GROUP))
    monkeypatch.setattr(policies, "entry_points", lambda group: found)


def test_without_any_only_the_built_in_ones_are_asked():
    assert admission_policies(Settings()) == BUILT_IN


@pytest.mark.usefixtures("installed")
def test_classes_and_objects_are_asked_after_the_built_in_ones_in_order():
    found = admission_policies(Settings(admission_policies=("slow", "ready")))
    assert found[:-2] == BUILT_IN
    assert [one.decide("x") for one in found[-2:]] == [Defer("slow: x")] * 2


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unknown", "installed: absent, broken, odd, ready, slow"),
        ("odd", "has no method decide"),
        ("broken", "cannot be loaded: RuntimeError"),
        ("absent", "cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_loaded_is_named(name, why):
    with pytest.raises(UsageError, match=why) as failed:
        admission_policies(Settings(admission_policies=(name,)))
    assert repr(name) in str(failed.value)


def rank_by_title(agenda, at):
    return len(agenda) + at


def announce(monkeypatch, what):
    found = [EntryPoint("mine", f"{__name__}:{what}", RANKERS)]
    monkeypatch.setattr(policies, "entry_points", lambda group: found)


def test_rankers_are_called_by_name_and_one_that_fails_ranks_nothing(monkeypatch):
    announce(monkeypatch, "rank_by_title")
    mine = operator_rankers()["mine"]
    assert mine("abc", 4) == 7
    assert mine(None, 4) == 0


@pytest.mark.parametrize("what", ["NO_POLICY", "missing"])
def test_a_ranker_that_is_none_lets_nothing_start(monkeypatch, what):
    announce(monkeypatch, what)
    with pytest.raises(UsageError, match="the ranker 'mine'"):
        operator_rankers()
