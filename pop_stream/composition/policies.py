"""The admission policies of a process: the built-in ones, and an operator's own by entry point.

A package of the operator's announces a policy in its `pyproject.toml`:

    [project.entry-points."pop_stream.admission_policies"]
    working-hours = "acme_policies:WorkingHours"

and `POP_ADMISSION_POLICIES='["working-hours"]'`, for API and ingest alike, has it asked. What
is named and cannot be loaded keeps the process from starting: nothing is let in unasked.

Rankers are announced alike, as functions in the group `pop_stream.rankers`, and insights call
them by name. One that fails ranks nothing: a rank orders, and protects nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import structlog

from pop_stream.model.agenda import Agenda
from pop_stream.operations.errors import UsageError
from pop_stream.policy.ingress.policies import BUILT_IN, AdmissionPolicy, GuardedPolicy
from pop_stream.policy.ingress.rankers import RankFunction
from pop_stream.settings import Settings

GROUP: Final = "pop_stream.admission_policies"

_log = structlog.get_logger()


def admission_policies(settings: Settings) -> Sequence[AdmissionPolicy]:
    """The policies to ask, the built-in ones first.

    Raises:
        UsageError: If one that the settings name is not installed, or is no policy.
    """
    return (*BUILT_IN, *(_guarded(name) for name in settings.admission_policies))


RANKERS: Final = "pop_stream.rankers"


def operator_rankers() -> Mapping[str, RankFunction]:
    """The installed rankers, by name.

    Raises:
        UsageError: If one cannot be loaded, or is no function.
    """
    found: dict[str, RankFunction] = {}
    for one in entry_points(group=RANKERS):
        try:
            function = one.load()
        except Exception as error:
            msg = f"the ranker {one.name!r} ({one.value}) cannot be loaded: {error!r}"
            raise UsageError(msg) from error
        if not callable(function):
            msg = f"the ranker {one.name!r} ({one.value}) is no function of agenda and instant"
            raise UsageError(msg)
        found[one.name] = partial(_rank_by, one.name, function)
    return found


def _rank_by(name: str, function: RankFunction, agenda: Agenda, at: datetime) -> int:
    try:
        return int(function(agenda, at))
    except Exception as error:  # whatever it is, the agenda goes on without a rank
        _log.error("ranker.failed", ranker=name, exc_info=error)
        return 0


def _guarded(name: str) -> AdmissionPolicy:
    return GuardedPolicy(name, _loaded(name), partial(_on_failure, name))


def _loaded(name: str) -> AdmissionPolicy:
    known = {one.name: one for one in entry_points(group=GROUP)}
    if name not in known:
        installed = ", ".join(sorted(known)) or "none"
        msg = (
            f"POP_ADMISSION_POLICIES names {name!r}, and no installed package has such an "
            f"entry point in {GROUP}; installed: {installed}"
        )
        raise UsageError(msg)
    try:
        policy = _made(known[name])
    except Exception as error:
        msg = f"the admission policy {name!r} ({known[name].value}) cannot be loaded: {error!r}"
        raise UsageError(msg) from error
    if not isinstance(policy, AdmissionPolicy):
        msg = (
            f"the admission policy {name!r} ({known[name].value}) has no method "
            "decide(request); see pop_stream.policy.ingress.policies"
        )
        raise UsageError(msg)
    return policy


def _made(entry_point: EntryPoint) -> object:
    """What the entry point names; an instance of it, if that is a class."""
    named: object = entry_point.load()
    return named() if isinstance(named, type) else named


def _on_failure(name: str, error: Exception) -> None:
    _log.error("admission_policy.failed", policy=name, exc_info=error)
