"""The one check of a submission, whichever way it comes: over HTTP, or as a record of Kafka.

A submission is an agenda, or names a template to run; either way it becomes an agenda. Two
submissions of one id are the same or differ; a repeat is admitted once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Final, Literal, cast

import msgspec
from pydantic import ValidationError

from pop_stream.model.admission import AdmissionFields
from pop_stream.model.agenda import MOST_URGENT, Agenda, encode_agenda, parse_agenda
from pop_stream.model.definitions import Customer, Definitions, VersionedTemplate
from pop_stream.model.errors import (
    AgendaTooLargeError,
    ForbiddenError,
    Issue,
    MissingDefinitionError,
    SubmissionError,
)
from pop_stream.model.events.codec import MAX_EVENT_BYTES
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.model.template import (
    TEMPLATE_RUN,
    AgendaTemplate,
    TemplateRun,
    with_own_customer,
)
from pop_stream.model.tenancy import candidate_ids, display_id, qualified_id
from pop_stream.model.trace import Trace
from pop_stream.model.validation import issues_of, shorten, without_nul
from pop_stream.policy.ingress.policies import (
    ALLOW,
    BUILT_IN,
    AdmissionPolicy,
    AdmissionRequest,
    Verdict,
    asks_nothing,
    decide,
    obeying,
)
from pop_stream.policy.ingress.rankers import RankFunction, rank_of
from pop_stream.policy.ingress.routing import InsightRouter
from pop_stream.policy.splitting.parent import expand_run
from pop_stream.policy.splitting.periods import BUILT_IN_PERIODS, PeriodResolvers

_TEMPLATE_MARK: Final = b'"template_id"'


class _SubmissionOutline(msgspec.Struct):
    template_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_OUTLINE: Final = msgspec.json.Decoder(_SubmissionOutline)


def parse_submission(
    data: bytes | bytearray,
    templates: Mapping[str, VersionedTemplate],
    principal: Principal = ANYONE,
    *,
    resolvers: PeriodResolvers = BUILT_IN_PERIODS,
) -> Agenda:
    """The agenda that a submission's JSON stands for.

    Args:
        data: An agenda; or, if it has a `template_id`, a template to run.
        templates: Those in force, by id.
        principal: Who submits it; a customer meets only templates that it sees, by the ids
            that it calls them, and runs them for itself if it names nobody.
        resolvers: Of periods, for templates that divide their runs.

    Raises:
        SubmissionError: With one issue per fault.
        MissingDefinitionError: If the template does not exist, or not for that customer.
    """
    if _TEMPLATE_MARK not in data or not _names_template(data):
        return parse_agenda(data)
    try:
        given = TEMPLATE_RUN.model_validate_json(without_nul(data, document="run"), strict=True)
    except ValidationError as error:
        raise SubmissionError(issues_of(error, document="run")) from None
    run = cast("TemplateRun", with_own_customer(given, principal.customer_id))
    if not principal.is_operator:
        templates = VisibleTemplates(templates, principal)
    named = run.model_dump(include={"customer_id"}).get("customer_id")
    known = templates.get(run.template_id) or templates.get(
        qualified_id(run.template_id, named)
    )
    # Before it is expanded: what a template finds wrong with a run reveals the template.
    if known is None or (named is not None and not known.template.serves(named)):
        raise MissingDefinitionError([unknown_template(run.template_id)])
    agenda = expand_run(known.template, run, version=known.version, resolvers=resolvers)
    if not known.template.serves(agenda.customer_id):
        raise MissingDefinitionError([unknown_template(run.template_id)])
    return agenda


class VisibleTemplates(Mapping[str, VersionedTemplate]):
    """Templates as far as they exist for a caller, by what it calls them."""

    def __init__(
        self, templates: Mapping[str, VersionedTemplate], principal: Principal
    ) -> None:
        self._templates = templates
        self._principal = principal

    def __getitem__(self, named: str) -> VersionedTemplate:
        for template_id in candidate_ids(named, self._principal):
            found = self._templates.get(template_id)
            if found is not None and self._principal.sees(found.template.ownership):
                return found
        raise KeyError(named)

    def __iter__(self) -> Iterator[str]:
        return (one for one in self._templates if one in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def unknown_template(template_id: str) -> Issue:
    """The issue for a template that does not exist, or that the customer does not see."""
    message = "no such template serves this customer; define it, or correct the id"
    return Issue("template_id", shorten(template_id), message)


def _names_template(data: bytes | bytearray) -> bool:
    """Whether the object itself has the field; the word may stand deeper, too."""
    try:
        return _OUTLINE.decode(data).template_id is not msgspec.UNSET
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


MAX_DIFFERENCES = 5
"""Differences that are listed; more would help nobody."""


def differences(accepted: bytes, sent: bytes) -> tuple[Issue, ...]:
    """In what an agenda that was sent differs from the one accepted under its id.

    Args:
        accepted: JSON as accepted.
        sent: JSON as sent; the order of fields makes no difference.

    Returns:
        At most `MAX_DIFFERENCES` issues, in the order of the fields' names; none if both are
        the same.
    """
    if accepted == sent:
        return ()
    known, again = msgspec.json.decode(accepted), msgspec.json.decode(sent)
    for one in (known, again):
        one.pop("trace", None)  # the same once more is another request
    found = _differences(known, again, "")
    return tuple(islice(found, MAX_DIFFERENCES))


def _differences(before: object, after: object, path: str) -> Iterator[Issue]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            inner = f"{path}.{name}" if path else str(name)
            yield from _differences(before.get(name), after.get(name), inner)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif before != after or type(before) is not type(after):
        message = (
            f"differs from what was accepted under this id, {shorten(before)}; "
            "send the same, or choose another id"
        )
        yield Issue(shorten(path), shorten(after), message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A sound agenda with an id and an insight, as it goes on.

    Attributes:
        agenda: With its final id.
        visible_id: What its submitter calls it.
        value: The agenda as JSON, with its id.
        is_named: Whether its submitter chose its id.
    """

    agenda: Agenda
    agenda_id: str
    visible_id: str
    insight_id: str
    value: bytes
    is_named: bool

    @property
    def customer_id(self) -> str:
        """Whose it is."""
        return self.agenda.customer_id

    @property
    def is_urgent(self) -> bool:
        """Whether an insight that is full lets it pass."""
        return self.agenda.priority == MOST_URGENT


Standing = Literal["new", "perhaps", "admitted"]
"""Whether an agenda was let in before: no, perhaps before a crash, or surely by the API."""


class Admission:
    """Checks submissions by the definitions of one moment; stateless otherwise.

    Quotas are no part of it: they depend on what else is on its way, see `QuotaLedger`.

    Args:
        definitions: Whose insights an agenda must fit, and whose templates are run.
        max_agenda_bytes: Of an agenda as it is sent.
        defined_customers_only: Whether agendas of customers that are not defined are refused.
        before: By older definitions; its router goes on if only templates have changed.
        resolvers: Of periods, for templates that divide their runs.
        policies: Asked about every agenda that is sound and has an insight.
        rankers: The operator's own, by the names that insights call them.

    Attributes:
        definitions: Those of that moment.
        router: Over the insights of that moment.
        has_policies: Whether a policy could say anything but that an agenda is allowed.
    """

    def __init__(  # noqa: PLR0913  # by what it decides, named once
        self,
        definitions: Definitions,
        *,
        max_agenda_bytes: int,
        defined_customers_only: bool = False,
        before: "Admission | None" = None,
        resolvers: PeriodResolvers = BUILT_IN_PERIODS,
        policies: Sequence[AdmissionPolicy] = BUILT_IN,
        rankers: Mapping[str, RankFunction] = MappingProxyType({}),
    ) -> None:
        self.rankers = rankers
        self.policies = policies
        self.definitions: Definitions = definitions
        self.defined_customers_only = defined_customers_only
        self.router: InsightRouter = (
            before.router
            if before is not None and definitions.decides_like(before.definitions)
            else InsightRouter(
                definitions.insights.values(),
                definitions.customers,
                defined_only=defined_customers_only,
            )
        )
        self._templates = definitions.templates
        self.resolvers: PeriodResolvers = resolvers
        self.has_policies = any(one not in BUILT_IN for one in policies) or not asks_nothing(
            _gates(definitions)
        )
        self.max_agenda_bytes = max_agenda_bytes

    def following(self, definitions: Definitions) -> "Admission":
        """The same, by newer definitions; itself if these are its own."""
        if definitions is self.definitions:
            return self
        return Admission(
            definitions,
            max_agenda_bytes=self.max_agenda_bytes,
            defined_customers_only=self.defined_customers_only,
            before=self,
            resolvers=self.resolvers,
            policies=self.policies,
            rankers=self.rankers,
        )

    def customer_of(self, agenda: Agenda) -> Customer:
        """Its customer as it is defined, which says what its agendas leave out."""
        return self.definitions.customer(CustomerId(agenda.customer_id))

    def admit(  # noqa: PLR0913  # what is known of a submission, named once
        self,
        raw: bytes | bytearray,
        principal: Principal,
        *,
        new_id: Callable[[], str],
        suggested_id: str | None = None,
        trace: Trace | None = None,
        standing: "Standing" = "new",
        at: datetime | None = None,
    ) -> Submission:
        """The submission that the JSON text of an agenda, or of a template's run, makes.

        Args:
            raw: What was sent.
            principal: Who sent it.
            new_id: Makes the id of an agenda for which nobody chose one.
            suggested_id: Chosen by the sender outside the text; the text's own goes first.
            trace: Where it came from, unless the text says so itself.
            standing: Whether it may have been let in before.
            at: When it came in; None leaves it without a computed rank.

        Raises:
            AdmissionDeniedError: If a policy denies it.
            AgendaTooLargeError: If the text is too large.
            ForbiddenError: If the sender may not submit, or not for its customer, known or not.
            MissingDefinitionError: If it fits no insight, or its template does not exist.
            SubmissionError: If it is malformed or unsound.
        """
        self.check_size(raw)
        agenda = self.parse(raw, principal)
        if agenda.trace is None and trace is not None:
            agenda = agenda.model_copy(update={"trace": trace})
        self.check_sender(principal, agenda.customer_id)
        return self.admit_agenda(
            agenda,
            principal,
            new_id=new_id,
            suggested_id=suggested_id,
            standing=standing,
            at=at,
        )

    def parse(self, raw: bytes | bytearray, principal: Principal = ANYONE) -> Agenda:
        """The agenda that the text stands for; of a template that the sender sees.

        Raises:
            SubmissionError: If it is malformed or unsound.
        """
        return parse_submission(raw, self._templates, principal, resolvers=self.resolvers)

    def admit_agenda(  # noqa: PLR0913  # as in `admit`
        self,
        agenda: Agenda,
        principal: Principal,
        *,
        new_id: Callable[[], str],
        suggested_id: str | None = None,
        standing: "Standing" = "new",
        template: AgendaTemplate | None = None,
        at: datetime | None = None,
    ) -> Submission:
        """The submission that a sound agenda makes; see `admit`.

        Args:
            agenda: Of a customer for whom its sender may submit, see `check_sender`.
            principal: Who sent it.
            new_id: Makes its id, if nobody chose one.
            suggested_id: As in `admit`; of no account for another's agenda.
            standing: As in `admit`.
            template: What it was made from, if that may be newer than what is in force.
            at: As in `admit`.

        Raises:
            AdmissionDeniedError: If a policy denies it.
            AgendaTooLargeError: If it is too large, written out and with what was filled in.
            ForbiddenError: If the sender submits for another customer, and the agenda names its
                id, or goes to an insight that is not the sender's own.
            MissingDefinitionError: If it fits no insight.
            SubmissionError: If it is too large for the events that carry it.
        """
        insight_id = self.router.route(agenda)
        if not principal.speaks_for(agenda.customer_id):
            self._check_on_behalf(agenda, insight_id, principal)
            suggested_id = None
        if standing != "admitted":
            verdict = self.verdict(agenda, insight_id, template)
            agenda = obeying(agenda, verdict, may_deny=standing == "new")
            agenda = self._ranked(agenda, insight_id, at)
        named = agenda.id or suggested_id
        agenda_id = qualified_id(named, principal.customer_id) if named else new_id()
        if agenda_id != agenda.id:
            agenda = agenda.model_copy(update={"id": agenda_id})
        value = encode_agenda(agenda)
        self.check_size(value, agenda)
        return Submission(
            agenda=agenda,
            agenda_id=agenda_id,
            visible_id=display_id(agenda_id, principal.customer_id),
            insight_id=insight_id,
            value=value,
            is_named=named is not None,
        )

    def _ranked(self, agenda: Agenda, insight_id: InsightId, at: datetime | None) -> Agenda:
        ranker = self.definitions.insights[insight_id].ranker
        if ranker is None or agenda.rank or at is None:
            return agenda
        return agenda.model_copy(update={"rank": rank_of(agenda, ranker, at, self.rankers)})

    def verdict(
        self, agenda: Agenda, insight_id: InsightId, template: AgendaTemplate | None = None
    ) -> Verdict:
        """What the policies say of a sound agenda that goes to the insight."""
        if not self.has_policies and (template is None or asks_nothing([template])):
            return ALLOW
        customer_id = CustomerId(agenda.customer_id)
        named = self._templates.get(agenda.template.id) if agenda.template else None
        request = AdmissionRequest(
            agenda=agenda,
            customer=self.definitions.customer(customer_id),
            is_defined=customer_id in self.definitions.customers,
            insight=self.definitions.insights[insight_id],
            template=template or (named.template if named else None),
        )
        return decide(self.policies, request)

    def check_sender(self, sender: Principal, customer_id: str | None) -> None:
        """Check that the sender may submit, and for the customer, as far as one is named.

        Raises:
            ForbiddenError: If it may not.
        """
        if customer_id is not None:
            self.check_customer(sender, customer_id)
        if not sender.has_role(Role.SUBMIT):
            msg = f"{sender.name} submits nothing: it lacks the role {Role.SUBMIT.value!r}"
            raise ForbiddenError(msg)

    def check_customer(self, sender: Principal, customer_id: str) -> None:
        """Check that what the sender submits may be the customer's.

        It may be its own, and of customers that say so in their `submitters`. That an insight
        of the sender's serves them is not enough: the sender decides that alone, and what it
        submits is on their account.

        Raises:
            ForbiddenError: If it may not.
        """
        if sender.speaks_for(customer_id):
            return
        customer = self.definitions.customers.get(CustomerId(customer_id))
        if customer is None or sender.customer_id not in customer.submitters:
            msg = (
                f"{sender.name} submits for customer {sender.customer_id!r} only, and for "
                "those that name it in their `submitters`"
            )
            raise ForbiddenError(msg)

    def _check_on_behalf(
        self, agenda: Agenda, insight_id: InsightId, sender: Principal
    ) -> None:
        if self.definitions.insights[insight_id].ownership.owner != sender.customer_id:
            msg = "only what goes to an insight of one's own can be submitted for others"
            raise ForbiddenError(msg)
        if agenda.id is not None:
            msg = "ids are in the name space of the agenda's customer; leave id out"
            raise ForbiddenError(msg)

    def check_size(self, text: bytes | bytearray, agenda: Agenda | None = None) -> None:
        """Check the JSON text of an agenda: as it was sent, or as it is kept.

        Every entry point checks what is kept, so what one has let in no other refuses. A trace
        counts for nothing, as ingest may add it to what the API has let in.

        Args:
            text: The text.
            agenda: Which it is, once that is known; then its events must fit, too.

        Raises:
            AgendaTooLargeError: If it is too large.
            SubmissionError: If an event with it would be.
        """
        size = len(text)
        if agenda is not None and agenda.trace is not None:
            size -= len(agenda.trace.model_dump_json(exclude_defaults=True)) + _TRACE_KEY_BYTES
        if size > self.max_agenda_bytes:
            raise AgendaTooLargeError(size, self.max_agenda_bytes)
        if agenda is not None:
            _check_events(agenda, size)


def _gates(definitions: Definitions) -> Iterator[AdmissionFields]:
    yield from definitions.insights.values()
    yield from (one.template for one in definitions.templates.values())


_TRACE_KEY_BYTES: Final = len(',"trace":')

_EVENT_FIELDS_BYTES: Final = 16_000
"""More than an event has beside the agenda, and the names or types of its operations."""


def _check_events(agenda: Agenda, size: int) -> None:
    """Refuse what no record could carry: events list names and types beside the agenda."""
    total = size + _EVENT_FIELDS_BYTES
    if size + total > MAX_EVENT_BYTES:  # names and types are part of the agenda
        names = len(msgspec.json.encode([one.name for one in agenda.operations]))
        types = len(msgspec.json.encode([one.type for one in agenda.operations]))
        total += max(names, types)
    if total > MAX_EVENT_BYTES:
        message = f"grows beyond {MAX_EVENT_BYTES} bytes in an event; split it in several"
        raise SubmissionError([Issue("agenda", f"{total} bytes", message)])
