"""The one check of a submission, whichever way it comes: over HTTP, or as a record of Kafka.

A submission is an agenda, or names a template to run; either way it becomes an agenda. Two
submissions of one id are the same or differ; a repeat is admitted once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, cast

import msgspec
from pydantic import ValidationError

from pop_stream.model.agenda import Agenda, encode_agenda, parse_agenda
from pop_stream.model.definitions import Definitions, VersionedTemplate
from pop_stream.model.errors import (
    AgendaTooLargeError,
    ForbiddenError,
    Issue,
    MissingDefinitionError,
    SubmissionError,
)
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.template import TEMPLATE_RUN, TemplateRun, expand, with_own_customer
from pop_stream.model.tenancy import candidate_ids, display_id, qualified_id
from pop_stream.model.trace import Trace
from pop_stream.model.validation import issues_of, shorten, without_nul
from pop_stream.policy.ingress.routing import InsightRouter

_TEMPLATE_MARK: Final = b'"template_id"'


class _SubmissionOutline(msgspec.Struct):
    template_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_OUTLINE: Final = msgspec.json.Decoder(_SubmissionOutline)


def parse_submission(
    data: bytes | bytearray,
    templates: Mapping[str, VersionedTemplate],
    principal: Principal = ANYONE,
) -> Agenda:
    """The agenda that a submission's JSON stands for.

    Args:
        data: An agenda; or, if it has a `template_id`, a template to run.
        templates: Those in force, by id.
        principal: Who submits it; a customer meets only templates that it sees, by the ids
            that it calls them, and runs them for itself if it names nobody.

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
    agenda = expand(known.template, run, version=known.version)
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


class Admission:
    """Checks submissions by the definitions of one moment; stateless otherwise.

    Quotas are no part of it: they depend on what else is on its way, see `QuotaLedger`.

    Args:
        definitions: Whose insights an agenda must fit, and whose templates are run.
        max_agenda_bytes: Of an agenda as it is sent.

    Attributes:
        router: Over the insights of that moment.
    """

    def __init__(self, definitions: Definitions, *, max_agenda_bytes: int) -> None:
        self.router = InsightRouter(definitions.insights.values(), definitions.customers)
        self._templates = definitions.templates
        self._max_agenda_bytes = max_agenda_bytes

    def admit(
        self,
        raw: bytes | bytearray,
        principal: Principal,
        *,
        new_id: Callable[[], str],
        suggested_id: str | None = None,
        trace: Trace | None = None,
    ) -> Submission:
        """The submission that the JSON text of an agenda, or of a template's run, makes.

        Args:
            raw: What was sent.
            principal: Who sent it.
            new_id: Makes the id of an agenda for which nobody chose one.
            suggested_id: Chosen by the sender outside the text; the text's own goes first.
            trace: Where it came from, unless the text says so itself.

        Raises:
            AgendaTooLargeError: If the text is too large.
            ForbiddenError: If the sender may not submit, or not for its customer, known or not.
            MissingDefinitionError: If it fits no insight, or its template does not exist.
            SubmissionError: If it is malformed or unsound.
        """
        self.check_size(raw)
        agenda = self.parse(raw, principal)
        if agenda.trace is None and trace is not None:
            agenda = agenda.model_copy(update={"trace": trace})
        check_sender(principal, agenda.customer_id)
        return self.admit_agenda(agenda, principal, new_id=new_id, suggested_id=suggested_id)

    def parse(self, raw: bytes | bytearray, principal: Principal = ANYONE) -> Agenda:
        """The agenda that the text stands for; of a template that the sender sees.

        Raises:
            SubmissionError: If it is malformed or unsound.
        """
        return parse_submission(raw, self._templates, principal)

    def admit_agenda(
        self,
        agenda: Agenda,
        principal: Principal,
        *,
        new_id: Callable[[], str],
        suggested_id: str | None = None,
    ) -> Submission:
        """The submission that a sound agenda makes, which the sender may submit; see `admit`.

        Raises:
            MissingDefinitionError: If it fits no insight.
        """
        insight_id = self.router.route(agenda)
        named = agenda.id or suggested_id
        agenda_id = qualified_id(named, principal.customer_id) if named else new_id()
        if agenda_id != agenda.id:
            agenda = agenda.model_copy(update={"id": agenda_id})
        return Submission(
            agenda=agenda,
            agenda_id=agenda_id,
            visible_id=display_id(agenda_id, principal.customer_id),
            insight_id=insight_id,
            value=encode_agenda(agenda),
            is_named=named is not None,
        )

    def check_size(self, text: bytes | bytearray) -> None:
        """Check the JSON text of an agenda.

        Raises:
            AgendaTooLargeError: If it is too large.
        """
        if len(text) > self._max_agenda_bytes:
            raise AgendaTooLargeError(len(text), self._max_agenda_bytes)


def check_sender(sender: Principal, customer_id: str | None) -> None:
    """Check that the sender may submit, and for the customer, as far as one is named.

    Raises:
        ForbiddenError: If it may not.
    """
    if customer_id is not None and not sender.speaks_for(customer_id):
        msg = f"{sender.name} submits for customer {sender.customer_id!r} only"
        raise ForbiddenError(msg)
    if not sender.has_role(Role.SUBMIT):
        msg = f"{sender.name} submits nothing: it lacks the role {Role.SUBMIT.value!r}"
        raise ForbiddenError(msg)
