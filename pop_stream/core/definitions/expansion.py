"""Expansion: the agenda that a template, a payload and parameters make.

Tokens of the template's own names are filled in here, at submission. Those that name an
operation's result or a built-in name are left for the run. Text that was filled in is not
read again here.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pop_stream.core.agendas.agenda import Agenda, TemplateRef, parse_agenda
from pop_stream.core.agendas.references import TOKEN, Reference, parse, walk
from pop_stream.core.definitions.payload_schema import payload_issues
from pop_stream.core.definitions.template import (
    OVERRIDES,
    PAYLOAD_NAMES,
    AgendaTemplate,
    TemplateCall,
    fits,
)
from pop_stream.core.errors import Issue, SubmissionError
from pop_stream.core.values.faults import shorten

MAX_EXPANDED_CHARACTERS: Final = 1024 * 1024
"""Characters of JSON that all tokens together may bring in: a token may stand a thousand
times in a template, and what it brings may be large."""

_ABSENT: Final = object()


def expand(template: AgendaTemplate, call: TemplateCall, *, version: int) -> Agenda:
    """The agenda that a run of the template submits.

    Args:
        template: With its tokens.
        call: Payload, parameters and the agenda's fields that win over the template's.
        version: Of the template; the agenda remembers it.

    Raises:
        SubmissionError: If the payload breaks the schema, a parameter is missing, unknown or
            of another type, a token leads nowhere, or the outcome is no sound agenda.
    """
    issues = [
        *_params_issues(template, call.params),
        *_payload_issues(template, call.payload),
    ]
    if issues:
        raise SubmissionError(issues)
    expansion = _TokenExpansion(_bindings(template, call))
    document = {
        key: expansion.fill(node, f"agenda.{key}") for key, node in template.agenda.items()
    }
    if expansion.issues:
        raise SubmissionError(expansion.issues)
    document.setdefault("title", template.title)
    document |= call.model_dump(include=set(OVERRIDES), exclude_none=True, mode="json")
    document["template"] = TemplateRef(id=template.id, version=version).model_dump()
    return parse_agenda(document)


def _bindings(template: AgendaTemplate, call: TemplateCall) -> Mapping[str, object]:
    """The document behind each name; a parameter that has no value is absent."""
    given = {
        name: call.params.get(name, param.default if param.has_default else _ABSENT)
        for name, param in template.params.items()
    }
    return {**template.static_params, **given, **dict.fromkeys(PAYLOAD_NAMES, call.payload)}


def _params_issues(template: AgendaTemplate, given: Mapping[str, object]) -> Iterator[Issue]:
    declared = template.params
    for name, value in given.items():
        param = declared.get(name)
        if param is None:
            known = ", ".join(sorted(declared)[:8]) or "none"
            yield Issue(
                f"params.{shorten(name)}",
                shorten(value),
                f"template {template.id!r} declares no such parameter; it has: {known}",
            )
        elif not fits(param.type, value):
            message = f"must be of type {param.type}"
            yield Issue(f"params.{name}", shorten(value), message)
    for name, param in declared.items():
        if param.required and name not in given:
            message = f"template {template.id!r} requires it; give a value of type {param.type}"
            yield Issue(f"params.{name}", "nothing", message)


def _payload_issues(template: AgendaTemplate, payload: object) -> Iterator[Issue]:
    if template.payload_schema is not None:
        yield from payload_issues(template.payload_schema, payload, field="payload")


@dataclass(slots=True)
class _TokenExpansion:
    """Fills tokens in, and notes every one that cannot be."""

    bindings: Mapping[str, object]
    issues: list[Issue] = field(default_factory=list)
    expanded_characters: int = 0

    def fill(self, node: object, path: str) -> object:
        """The node with its tokens filled in; `path` says where it stands."""
        if isinstance(node, str):
            return self._fill_text(node, path) if "@<" in node else node
        if isinstance(node, Mapping):
            return {key: self.fill(one, f"{path}.{key}") for key, one in node.items()}
        if isinstance(node, list):
            return [self.fill(one, f"{path}[{index}]") for index, one in enumerate(node)]
        return node

    def _fill_text(self, text: str, path: str) -> object:
        if whole := TOKEN.fullmatch(text):
            reference = parse(whole[1])
            return text if reference.is_run_time else self._node(reference, text, path)
        return TOKEN.sub(lambda match: self._part(match[0], match[1], path), text)

    def _part(self, token: str, inner: str, path: str) -> str:
        """A token within a longer text, as text."""
        reference = parse(inner)
        if reference.is_run_time:
            return token
        node = self._node(reference, token, path)
        if isinstance(node, Mapping | list | tuple):
            self._refuse(
                path,
                token,
                "stands inside a text but leads to an object or a list; let it lead to a "
                "text, number, boolean or null, or make it the whole text",
            )
            return token
        return node if isinstance(node, str) else json.dumps(node)

    def _node(self, reference: Reference, token: str, path: str) -> object:
        root = self.bindings.get(reference.name, _ABSENT)
        try:
            node = walk(root, reference.pointer)
        except LookupError:
            node = _ABSENT
        if node is not _ABSENT:
            return self._counted(node, token, path)
        if reference.fallback is not None:
            return reference.fallback
        if not reference.null_fallback:
            self._refuse(path, token, _why_absent(reference, is_given=root is not _ABSENT))
        return None

    def _counted(self, node: object, token: str, path: str) -> object:
        """The node, unless all that was filled in grows out of bounds with it."""
        if self.expanded_characters > MAX_EXPANDED_CHARACTERS:
            return None
        self.expanded_characters += len(json.dumps(node))
        if self.expanded_characters > MAX_EXPANDED_CHARACTERS:
            most = f"more than {MAX_EXPANDED_CHARACTERS:,} characters are filled in"
            self._refuse(path, token, f"{most} with it; store large inputs and refer to them")
        return node

    def _refuse(self, path: str, token: str, message: str) -> None:
        if len(self.issues) < SubmissionError.MAX_ISSUES:
            self.issues.append(Issue(shorten(path), shorten(token), message))


def _why_absent(reference: Reference, *, is_given: bool) -> str:
    fallback = "a fallback after '?' would stand in for it"
    if not is_given:
        name = reference.name
        return f"parameter {name!r} was not given and has no default; give it, or {fallback}"
    what = "the payload" if reference.name in PAYLOAD_NAMES else repr(reference.name)
    return f"{what} has nothing at {reference.pointer!r}; {fallback}"
