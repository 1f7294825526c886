"""Pages of those who run the service: API keys, the audit log, and what is wrong."""

from datetime import timedelta
from typing import Final

from multidict import MultiMapping

from pop_stream.console.numbers import whole_number
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import Issue, NotFoundError, SubmissionError
from pop_stream.model.identity import Role

PAGE: Final = 50
"""Keys or entries of one page."""

_MAX_DAYS: Final = 3_650
_AUDIT_FIELDS: Final = (("kind", "Kind"), ("object_id", "Object"), ("principal", "By"))

# ---- keys ----


async def keys(view: PageView) -> Page:
    """Keys that the viewer sees, and a form for a new one."""
    customer = view.query.get("customer_id", "").strip()
    listed = await view.client.keys.page(
        customer_id=customer or None, limit=PAGE, after=view.query.get("after") or None
    )
    return Page(
        "keys.html",
        "API keys",
        {
            "keys": listed.keys,
            "next": listed.next,
            "customer": customer,
            "roles": [one for one in Role if view.may(one)],
            "is_operator": view.is_operator,
        },
    )


async def make_key(view: PageView, form: MultiMapping[str]) -> Page:
    """Make a key; the page with its token is shown once."""
    days = form.get("days", "").strip()
    number = whole_number(days)
    if days and not 1 <= (number or 0) <= _MAX_DAYS:
        message = f"must be a whole number from 1 to {_MAX_DAYS:,}; empty for no end"
        raise SubmissionError([Issue("days", days[:200], message)])
    made = await view.client.keys.create(
        [_role(one) for one in form.getall("role", [])],
        customer_id=form.get("customer_id", "").strip() or None,
        title=form.get("title", ""),
        expires_at=view.now + timedelta(days=number) if number else None,
    )
    return Page("key_made.html", "A new key", {"key": made, "replaces": ""})


async def change_key(view: PageView, form: MultiMapping[str]) -> Page | str:
    """Rotate or revoke a key.

    Raises:
        NotFoundError: If the path names neither.
    """
    key_id, action = view.parts["key_id"], view.parts["action"]
    match action:
        case "revoke":
            await view.client.keys.revoke(key_id)
            return "/keys?did=revoke"
        case "rotate":
            hours = form.get("hours", "1")
            if hours not in {"0", "1", "24"}:
                raise SubmissionError([Issue("hours", hours[:200], "must be 0, 1 or 24")])
            grace = timedelta(hours=int(hours))
            made = await view.client.keys.rotate(key_id, grace=grace)
            return Page("key_made.html", "A new key", {"key": made, "replaces": key_id})
        case _:
            kind = "command"
            raise NotFoundError(kind, action[:50])


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        known = ", ".join(one.value for one in Role)
        raise SubmissionError([Issue("role", text[:200], f"must be one of {known}")]) from None


# ---- the audit log ----


async def audit(view: PageView) -> Page:
    """Who changed what, newest first; the filter is the page's address."""
    chosen = {name: view.query.get(name, "").strip() for name, _ in _AUDIT_FIELDS}
    before = view.query.get("before", "")
    wanted = {name: value for name, value in chosen.items() if value}
    listed = await view.client.audit.page(
        **wanted,
        limit=PAGE,
        before=whole_number(before) or None,
    )
    return Page(
        "audit.html",
        "Audit log",
        {
            "fields": _AUDIT_FIELDS,
            "chosen": chosen,
            "entries": listed.entries,
            "next": listed.next,
        },
    )


# ---- the doctor ----


async def doctor(view: PageView) -> Page:
    """What is wrong with the installation, with what to do about it."""
    report = await view.client.doctor()
    return Page("doctor.html", "Doctor", {"report": report})
