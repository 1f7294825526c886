"""Pages that define: a definition as JSON, what a change of it changes, and then the change.

Nothing is stored before its difference was shown. What is typed is judged twice by the same
rules: before the difference is shown, and by the API when it is stored, which also knows what a
definition needs and who may change it. A change names the version that it is a change of; if
another one came first, both are shown, and nothing is lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

import msgspec
from multidict import MultiMapping

from pop_stream.client import (
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiPreconditionError,
    ApiUnauthenticatedError,
    StoredDefinition,
)
from pop_stream.console.diff import DiffLine, as_text, difference
from pop_stream.console.layout import title_and_status
from pop_stream.console.numbers import version_in, whole_number
from pop_stream.console.pages.definitions import (
    Content,
    DefinitionKind,
    default_rows,
    kind_of,
    may_change,
    may_define,
    required_fields,
    said,
)
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import (
    ForbiddenError,
    Issue,
    IssuesError,
    NotFoundError,
    PopStreamError,
    SubmissionError,
)
from pop_stream.model.revisions import parse_definition
from pop_stream.model.validation import shorten, without_nul

_NEW: Final = 0
"""Stands in a form for the version of what is not there yet."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was typed, and what it would change.

    Attributes:
        object_id: Of the definition; empty for a new one, which names its own.
        version: That it is a change of; `_NEW` for a new one.
        text: As it was typed.
        reason: Why it is changed, for the audit log.
    """

    kind: DefinitionKind
    object_id: str
    version: int
    text: str
    reason: str = ""

    def content(self) -> dict[str, Any]:
        """The text as JSON.

        Raises:
            IssuesError: If it is none, or no object.
        """
        try:
            raw = without_nul(self.text.encode(), document=self.kind.kind)
            content = msgspec.json.decode(raw)
        except (ValueError, RecursionError) as error:
            message = f"is no JSON: {error}"
            raise SubmissionError([Issue("content", shorten(self.text), message)]) from None
        if not isinstance(content, dict):
            message = f"must be a JSON object with the fields of a {self.kind.kind}"
            raise SubmissionError([Issue("content", shorten(content), message)])
        return content

    def judged(self, content: Mapping[str, Any], owner: str | None) -> Content:
        """What the content says, without defaults.

        Args:
            content: The text as JSON.
            owner: Whose it is if it names nobody.

        Raises:
            IssuesError: If it is not sound.
        """
        object_id = self.object_id or content.get("id")
        if not isinstance(object_id, str):
            message = "name it: an id is a text"
            raise SubmissionError([Issue("id", shorten(object_id), message)])
        if owner is not None and self.kind.is_customers:
            content = {"owner": owner, **content}
        definition = parse_definition(self.kind.kind, object_id, content)
        found: dict[str, Any] = definition.model_dump(mode="json", exclude_defaults=True)
        return found


# ---- a new one ----


async def define(view: PageView) -> Page:
    """The form of a new definition.

    Raises:
        ForbiddenError: If the viewer may define none of this kind.
    """
    kind = kind_of(view)
    _expect(may_define(view, kind), kind)
    sample = as_text({"id": f"new-{kind.kind}", **kind.sample})
    return _form_page(Draft(kind, "", _NEW, sample))


async def define_it(view: PageView, form: MultiMapping[str]) -> Page | str:
    """Show what a new definition says, and define it once that was confirmed.

    Raises:
        ForbiddenError: If the viewer may define none of this kind.
    """
    kind = kind_of(view)
    _expect(may_define(view, kind), kind)
    draft = _draft(form, kind, "", _NEW)
    try:
        content = draft.content()
        new = draft.judged(content, view.caller.customer_id)
        if form.get("do") == "save":
            stored = await kind.calls(view.client).create(content, reason=draft.reason)
            return f"{kind.address(stored.definition.id)}?did=defined"
    except (ApiError, IssuesError) as error:
        return _refused(draft, error)
    return _form_page(draft) if _goes_on(form) else _preview_page(draft, difference({}, new))


# ---- a change ----


async def edit(view: PageView) -> Page:
    """The form of a definition, with what it says now.

    Raises:
        ForbiddenError: If the viewer may not change it.
    """
    kind, stored = await _changeable(view)
    return _form_page(Draft(kind, stored.definition.id, stored.version, as_text(said(stored))))


async def change_it(view: PageView, form: MultiMapping[str]) -> Page | str:
    """Show what a change changes, and make it once that was confirmed.

    Raises:
        ForbiddenError: If the viewer may not change it.
    """
    try:
        kind, stored = await _changeable(view)
    except ApiNotFoundError as error:
        if not may_define(view, kind_of(view)):
            raise
        return _form_page(_draft(form, kind_of(view), "", _NEW), error)
    draft = _draft(form, kind, stored.definition.id, version_in(form))
    try:
        content = draft.content()
        new = draft.judged(content, stored.content.get("owner"))
    except IssuesError as error:
        return _form_page(draft, error)
    if _goes_on(form):
        return _form_page(draft)
    if stored.version != draft.version:
        return await _conflict_page(view, draft, stored, new)
    if form.get("do") == "save":
        return await _save(view, draft, content, new)
    return _preview_page(draft, difference(said(stored), new))


async def _save(
    view: PageView, draft: Draft, content: Mapping[str, Any], new: Content
) -> Page | str:
    calls = draft.kind.calls(view.client)
    try:
        await calls.put(draft.object_id, content, if_match=draft.version, reason=draft.reason)
    except ApiPreconditionError:
        # Another change came between the look at it and this one.
        return await _conflict_page(view, draft, await calls.get(draft.object_id), new)
    except ApiError as error:
        return _refused(draft, error)
    return f"{draft.kind.address(draft.object_id)}?did=saved"


async def _conflict_page(
    view: PageView, draft: Draft, stored: StoredDefinition[Any], new: Content
) -> Page:
    """What another one changed meanwhile, and what would be changed now."""
    theirs: Sequence[DiffLine] = ()
    try:
        base = await draft.kind.calls(view.client).version(draft.object_id, draft.version)
        theirs = difference(said(base), said(stored))
    except ApiNotFoundError:
        pass  # versions are kept for a while only
    again = replace(draft, version=stored.version)
    page = _preview_page(again, difference(said(stored), new))
    more = {"theirs": theirs, "meant": draft.version, "is_conflict": True}
    return Page(page.template, page.title, {**page.values, **more}, status=HTTPStatus.CONFLICT)


# ---- the end of one ----


async def deletion(view: PageView) -> Page:
    """Asks whether to delete it.

    Raises:
        ForbiddenError: If the viewer may not change it.
    """
    return _deletion_page(*await _changeable(view))


async def delete_it(view: PageView, form: MultiMapping[str]) -> Page | str:
    """Delete it in the version that was shown; says what needs it, if anything does.

    Raises:
        ForbiddenError: If the viewer may not change it.
    """
    kind, stored = await _changeable(view)
    version = version_in(form)
    try:
        await kind.calls(view.client).delete(
            stored.definition.id, if_match=version, reason=form.get("reason", "")
        )
    except ApiConflictError as error:
        return _deletion_page(kind, stored, error)
    return f"/definitions/{kind.path}?did=deleted"


def _deletion_page(
    kind: DefinitionKind, stored: StoredDefinition[Any], error: ApiConflictError | None = None
) -> Page:
    object_id = stored.definition.id
    values = {
        "kind": kind,
        "object_id": object_id,
        "stored": stored,
        "said": said(stored),
        "fault": str(error) if error else "",
        "is_changed": isinstance(error, ApiPreconditionError),
    }
    status = HTTPStatus.CONFLICT if error else HTTPStatus.OK
    return Page("definition_deletion.html", f"Delete {object_id}", values, status=status)


# ---- versions ----


async def version(view: PageView) -> Page:
    """What a definition said in one version, and what changed with it and since.

    Raises:
        NotFoundError: If there was no such version, or it is not kept any more.
    """
    kind, object_id = kind_of(view), view.parts["object_id"]
    number = whole_number(view.parts["version"])
    if number is None:
        named = f"{kind.kind} version"
        raise NotFoundError(named, f"{object_id}/{view.parts['version']}"[:200])
    shown = await kind.calls(view.client).version(object_id, number)
    before = await _version_or_none(view, kind, shown.version - 1)
    now = await _stored_or_none(view, kind)
    return Page(
        "definition_version.html",
        f"{object_id}, version {shown.version}",
        {
            "kind": kind,
            "object_id": object_id,
            "shown": shown,
            "before": before,
            "now": now,
            "changed": difference(said(before), said(shown)) if before else (),
            "since": difference(said(shown), said(now)) if now else (),
            "text": as_text(said(shown)),
        },
    )


async def _version_or_none(
    view: PageView, kind: DefinitionKind, number: int
) -> StoredDefinition[Any] | None:
    try:
        return await kind.calls(view.client).version(view.parts["object_id"], number)
    except ApiNotFoundError:
        return None  # it was a deletion, or there was none, or it is not kept


async def _stored_or_none(view: PageView, kind: DefinitionKind) -> StoredDefinition[Any] | None:
    try:
        return await kind.calls(view.client).get(view.parts["object_id"])
    except ApiNotFoundError:
        return None  # it was deleted


# ---- what they share ----


async def _changeable(view: PageView) -> tuple[DefinitionKind, StoredDefinition[Any]]:
    kind = kind_of(view)
    stored = await kind.calls(view.client).get(view.parts["object_id"])
    _expect(may_change(view, kind, stored.content), kind)
    return kind, stored


def _expect(may: bool, kind: DefinitionKind) -> None:  # a claim, not a switch
    if not may:
        whose = "your own" if kind.is_customers else "operators'"
        msg = f"changing a {kind.kind} needs the role {kind.writer.value}, and to be {whose}"
        raise ForbiddenError(msg)


def _draft(
    form: MultiMapping[str], kind: DefinitionKind, object_id: str, version: int
) -> Draft:
    return Draft(kind, object_id, version, form.get("content", ""), form.get("reason", ""))


def _goes_on(form: MultiMapping[str]) -> bool:
    """Whether the viewer wants to edit what was shown."""
    return form.get("do") == "edit"


def _refused(draft: Draft, error: PopStreamError) -> Page:
    if isinstance(error, ApiUnauthenticatedError | ApiForbiddenError | ApiNotFoundError):
        raise error
    return _form_page(draft, error)


def _form_page(draft: Draft, error: PopStreamError | None = None) -> Page:
    kind = draft.kind
    name = f"Edit {draft.object_id}" if draft.object_id else f"A new {kind.kind}"
    issues = getattr(error, "issues", ())
    return Page(
        "definition_form.html",
        name,
        {
            "draft": draft,
            "kind": kind,
            "issues": issues,
            "detail": str(error) if error and not issues else "",
            "fields": default_rows(kind.kind, {}),
            "required": required_fields(kind),
        },
        status=title_and_status(error)[1] if error else HTTPStatus.OK,
    )


def _preview_page(draft: Draft, lines: Sequence[DiffLine]) -> Page:
    name = f"Changes of {draft.object_id}" if draft.object_id else f"A new {draft.kind.kind}"
    values = {
        "draft": draft,
        "kind": draft.kind,
        "lines": lines,
        "is_conflict": False,
        "theirs": (),
        "meant": draft.version,
    }
    return Page("definition_preview.html", name, values)
