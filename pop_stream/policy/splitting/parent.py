"""Parents and children: the agenda of a run that divides itself, and the n-th it submits."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from pop_stream.model.admission import ACCEPTED
from pop_stream.model.agenda import Agenda, OwnId, TemplateRef, parse_agenda
from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.ids import ID_LENGTH
from pop_stream.model.references import escaped
from pop_stream.model.split import MAX_CHILDREN, Split
from pop_stream.model.template import (
    OVERRIDES,
    TEMPLATE_CALL,
    AgendaTemplate,
    TemplateCall,
    check_call,
    expand,
)
from pop_stream.model.validation import issues_of
from pop_stream.policy.splitting.cut import Cut, cut
from pop_stream.policy.splitting.periods import BUILT_IN_PERIODS, PeriodResolvers

SPLIT: Final = "split"
"""The type, and the name, of the operation that submits children."""

_OF_CHILDREN: Final = frozenset(
    {
        *("title", "link_id", "priority", "rank", "fairness_key", "cost_s", "expires_at"),
        *("max_attempts", "backoff"),
    }
)
"""Fields of a run that are those of each child."""

_OF_CHILDREN_ALONE: Final = frozenset({"cost_s"})
_LIKE_ITS_CHILDREN: Final = ("customer_id", "priority", "fairness_key")
_SUFFIX_LENGTH: Final = len(f".{MAX_CHILDREN}")


class ParentAgenda(BaseModel):
    """Of whom children are."""

    model_config = ConfigDict(frozen=True)

    id: str
    customer_id: str
    link_id: str | None = None

    @property
    def children_link(self) -> str:
        """The link that groups the children: the parent's own, or its id."""
        return self.link_id or _short(self.id)

    def child_id(self, number: int) -> str:
        """The id of the n-th child, from 1; the customer's mark, if any, stays at its end."""
        _, mark, customer_id = self.id.partition("@")
        return f"{_short(self.id)}.{number}{mark}{customer_id}"


def _short(agenda_id: str) -> str:
    """The id without its customer, and by its hash if no number fits behind it."""
    named = agenda_id.partition("@")[0]
    if len(named) + _SUFFIX_LENGTH <= ID_LENGTH:
        return named
    return f"split-{sha256(named.encode()).hexdigest()[:40]}"


class ChildTemplate(BaseModel):
    """The template of children, as it was when the parent was submitted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: OwnId
    version: int = Field(default=0, ge=0)
    title: str = ""
    params: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    static_params: dict[str, JsonValue] = Field(default_factory=dict)
    agenda: dict[str, JsonValue]


class SplitJob(BaseModel):
    """Payload of an operation of type `split`: all that the children are made of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    split: Split = Field(default_factory=Split)
    template: ChildTemplate
    payload: JsonValue
    params: dict[str, JsonValue] = Field(default_factory=dict)
    fields: dict[str, JsonValue] = Field(default_factory=dict)

    @classmethod
    def of(cls, template: AgendaTemplate, call: TemplateCall, *, version: int) -> Self:
        """What a run of a template that splits leaves to its operation."""
        given = template.model_dump(
            mode="json", include={"id", "title", "params", "static_params", "agenda"}
        )
        fields = call.model_dump(include=set(_OF_CHILDREN), exclude_none=True, mode="json")
        return cls(
            split=template.split or Split(),
            template=ChildTemplate(version=version, **given),
            payload=call.payload,
            params=call.params,
            fields=fields,
        )

    def cut(self, resolvers: PeriodResolvers = BUILT_IN_PERIODS) -> Cut:
        """The parts of the payload; see `cut`."""
        return cut(self.payload, self.split, resolvers=resolvers)

    def agenda_template(self) -> AgendaTemplate:
        """The template that each child is a run of.

        Raises:
            SubmissionError: If it is none.
        """
        given = self.template.model_dump(exclude={"version"})
        try:
            return AgendaTemplate.model_validate(given, context=ACCEPTED)
        except ValidationError as error:
            raise SubmissionError(issues_of(error, document="template")) from None

    def child(
        self, template: AgendaTemplate, payload: Mapping[str, Any], own: Mapping[str, Any]
    ) -> Agenda:
        """One child.

        Args:
            template: `agenda_template`.
            payload: Its part.
            own: Fields of the agenda that win over all others.

        Raises:
            SubmissionError: If it is no sound agenda.
        """
        fields = {name: self.fields[name] for name in self.fields.keys() & _OF_CHILDREN}
        document = {"payload": payload, "params": self.params, **fields, **own}
        try:
            call = TEMPLATE_CALL.model_validate_json(msgspec.json.encode(document))
        except ValidationError as error:
            raise SubmissionError(issues_of(error, document="fields")) from None
        return expand(template, call, version=self.template.version)

    def numbered(
        self, template: AgendaTemplate, parent: ParentAgenda, part: tuple[int, dict[str, Any]]
    ) -> Agenda:
        """The n-th child of a parent, always the same; see `child`."""
        number, payload = part
        own = {
            "id": parent.child_id(number),
            "parent_id": parent.id,
            "customer_id": parent.customer_id,
            "link_id": parent.children_link,
        }
        return self.child(template, payload, own)


def expand_run(
    template: AgendaTemplate,
    call: TemplateCall,
    *,
    version: int,
    resolvers: PeriodResolvers = BUILT_IN_PERIODS,
) -> Agenda:
    """The agenda that a run submits: the template's, or one that divides the run.

    Args:
        template: With its tokens.
        call: Payload, parameters and the agenda's fields that win over the template's.
        version: Of the template.
        resolvers: Of periods.

    Raises:
        SubmissionError: As `expand` and `cut` do.
    """
    if template.split is None:
        return expand(template, call, version=version)
    check_call(template, call)
    job, first = first_child(template, call, version=version, resolvers=resolvers)
    given = call.model_dump(include=set(OVERRIDES), exclude_none=True, mode="json")
    document: dict[str, Any] = {name: getattr(first, name) for name in _LIKE_ITS_CHILDREN}
    link_id = template.agenda.get("link_id")
    if isinstance(link_id, str) and "@<" not in link_id:
        document["link_id"] = link_id
    document["title"] = template.title
    document |= {name: given[name] for name in given.keys() - _OF_CHILDREN_ALONE}
    document["params"] = template.split.params
    document["template"] = TemplateRef(id=template.id, version=version).model_dump()
    payload = job.model_dump(mode="json", exclude_defaults=True)
    operation = {"name": SPLIT, "type": SPLIT, "payload": escaped(payload)}
    return parse_agenda({**document, "operations": [operation]})


def first_child(
    template: AgendaTemplate,
    call: TemplateCall,
    *,
    version: int,
    resolvers: PeriodResolvers = BUILT_IN_PERIODS,
) -> tuple[SplitJob, Agenda]:
    """What a run leaves to its operation, and its first child, which shows that it is sound.

    Raises:
        SubmissionError: If it is not.
    """
    job = SplitJob.of(template, call, version=version)
    payload = next(job.cut(resolvers).payloads())
    own = call.model_dump(include={"customer_id"}, exclude_none=True)
    return job, job.child(job.agenda_template(), payload, own)


def as_split(template: AgendaTemplate) -> AgendaTemplate:
    """The template, if it divides its runs.

    Raises:
        SubmissionError: If it does not.
    """
    if template.split is None:
        message = "its runs are not divided; give it the field `split`, or run it as it is"
        raise SubmissionError(
            [Issue("split", "nothing", f"template {template.id!r}: {message}")]
        )
    return template
