"""Admission policies: whether an agenda that is sound and has an insight is let in.

A policy allows it, denies it with what is wrong, or defers it: then it is let in, and held
with a reason until somebody releases it. The first that denies decides; of several that
defer, all reasons are given.

Policies are asked where an agenda comes in, in every entry point alike, and once: what the API
has let in is signed, and ingest does not ask again. An ingest that reads records again after a
crash does not know what it let in before; what would be denied then is held instead.

They are pure: no clock, no IO, the same answer for the same request. A policy of an operator's
own is named by the setting `admission_policies`; one that fails denies.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from pop_stream.model.admission import AdmissionFields
from pop_stream.model.agenda import Agenda
from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.errors import AdmissionDeniedError, Issue
from pop_stream.model.payload_schema import payload_issues
from pop_stream.model.references import find as find_references
from pop_stream.model.template import AgendaTemplate

MAX_REASON: Final = 500
"""Most characters of the reasons for which an agenda is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """What a policy knows of an agenda.

    Attributes:
        agenda: Sound; perhaps without an id.
        customer: Its customer, or the defaults for one that is not defined.
        is_defined: Whether its customer is.
        insight: Where it goes.
        template: What it was made from, if that is still defined.
    """

    agenda: Agenda
    customer: Customer
    is_defined: bool
    insight: Insight
    template: AgendaTemplate | None


@dataclass(frozen=True, slots=True)
class Allow:
    """The policy has nothing against the agenda."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The agenda is refused.

    Attributes:
        issues: What is wrong, and what would be right; at least one.
    """

    issues: Sequence[Issue]


@dataclass(frozen=True, slots=True)
class Defer:
    """The agenda is let in, and held until somebody releases it.

    Attributes:
        reason: Shown to whoever asks why it waits.
    """

    reason: str


Verdict = Allow | Deny | Defer


@runtime_checkable
class AdmissionPolicy(Protocol):
    """Decides about agendas; pure and quick, for it is asked for each of them."""

    def decide(self, request: AdmissionRequest) -> Verdict:
        """Allow, deny or defer one agenda; the same request has the same answer."""
        ...


class EnabledPolicy:
    """Denies what goes to an insight, or comes from a template, that is not enabled."""

    def decide(self, request: AdmissionRequest) -> Verdict:
        """See the class."""
        found = [
            Issue(field, name, f"this {kind} is not enabled; enable it, or submit again later")
            for kind, field, name, fields in _gates(request)
            if not fields.enabled
        ]
        return Deny(found) if found else ALLOW


class LabelPolicy:
    """Denies what needs labels, for its insight or template, that its customer has not."""

    def decide(self, request: AdmissionRequest) -> Verdict:
        """See the class."""
        found: list[Issue] = []
        for kind, _, name, fields in _gates(request):
            missing = [one for one in fields.needs_labels if one not in request.customer.labels]
            if missing:
                message = (
                    f"the {kind} {name!r} needs a customer with the labels "
                    f"{', '.join(missing)}; an operator gives them, or choose another"
                )
                found.append(Issue("customer_id", request.agenda.customer_id, message))
        return Deny(found) if found else ALLOW


class PayloadPolicy:
    """Denies operations whose payloads break the schema that the insight has for their type.

    A payload with references is not known yet, and passes.
    """

    def decide(self, request: AdmissionRequest) -> Verdict:
        """See the class."""
        found = [*_payload_issues(request)] if request.insight.payload_schemas else []
        return Deny(found) if found else ALLOW


def _payload_issues(request: AdmissionRequest) -> Iterator[Issue]:
    schemas = request.insight.payload_schemas
    for index, operation in enumerate(request.agenda.operations):
        schema = schemas.get(operation.type)
        if schema is not None and not find_references(operation.payload):
            field = f"operations[{index}].payload"
            yield from payload_issues(schema, operation.payload, field=field)


Gate = tuple[Literal["insight", "template"], str, str, AdmissionFields]


def _gates(request: AdmissionRequest) -> Iterator[Gate]:
    """What an agenda has to pass: kind, field of an issue, id, and what it asks."""
    yield "insight", "insight_id", request.insight.id, request.insight
    if request.template is not None:
        yield "template", "template_id", request.template.id, request.template


ALLOW: Final = Allow()

BUILT_IN: Final[Sequence[AdmissionPolicy]] = (EnabledPolicy(), LabelPolicy(), PayloadPolicy())
"""Asked always, before an operator's own."""


def asks_nothing(gates: Iterable[AdmissionFields]) -> bool:
    """Whether all that passes these insights and templates is let in as it is, unranked."""
    return all(
        one.enabled
        and not one.needs_labels
        and not (isinstance(one, Insight) and (one.payload_schemas or one.ranker))
        for one in gates
    )


def decide(policies: Sequence[AdmissionPolicy], request: AdmissionRequest) -> Verdict:
    """The verdict of several policies, in order: the first denial, else all deferrals."""
    reasons: list[str] = []
    for policy in policies:
        match policy.decide(request):
            case Deny() as denial:
                return denial
            case Defer(reason):
                reasons.append(reason)
            case Allow():
                pass
    return Defer("; ".join(reasons)[:MAX_REASON]) if reasons else ALLOW


def obeying(agenda: Agenda, verdict: Verdict, *, may_deny: bool) -> Agenda:
    """The agenda as the policies let it in.

    Args:
        agenda: As it came.
        verdict: Of all policies.
        may_deny: Whether it is surely new; otherwise what is denied is held.

    Raises:
        AdmissionDeniedError: If they do not, and may.
    """
    if isinstance(verdict, Allow):
        return agenda
    if isinstance(verdict, Defer):
        held = verdict.reason
    elif may_deny:
        raise AdmissionDeniedError(verdict.issues)
    else:
        reason = "; ".join(map(str, verdict.issues))
        held = f"denied now, but perhaps let in before a restart: {reason}"
    reasons = [one for one in (agenda.hold_reason, held) if one]
    reason = "; ".join(reasons)[:MAX_REASON]
    return agenda.model_copy(update={"hold": True, "hold_reason": reason})


def _checked(verdict: object) -> Verdict:
    if isinstance(verdict, Allow | Defer) or (isinstance(verdict, Deny) and verdict.issues):
        return verdict
    msg = f"{verdict!r:.100} is no Allow, Deny with issues, or Defer"
    raise TypeError(msg)


class GuardedPolicy:
    """An operator's policy that denies when it fails: whatever it protects stays protected.

    Args:
        name: As the setting has it.
        policy: Of the operator's.
        on_failure: Called with each error.
    """

    def __init__(
        self, name: str, policy: AdmissionPolicy, on_failure: Callable[[Exception], None]
    ) -> None:
        self._name = name
        self._policy = policy
        self._on_failure = on_failure

    def decide(self, request: AdmissionRequest) -> Verdict:
        """What the policy says; a denial if it raises, or says nothing of the kind."""
        try:
            return _checked(self._policy.decide(request))
        except Exception as error:  # whatever it is, nothing is let in by it
            self._on_failure(error)
        message = "this admission policy fails, so nothing is let in; an operator must mend it"
        return Deny([Issue("admission_policy", self._name, message)])
