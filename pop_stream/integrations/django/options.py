"""The OPTIONS of a backend in the setting TASKS, checked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from pop_stream.settings import Settings

CustomerOf = Callable[[Any, list[Any], dict[str, Any]], str]
"""Task, args and kwargs to the customer whose share the work counts against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """One backend's options; each is the upper-case key of its name.

    Attributes:
        url: Where the API listens; `POP_API_URL` if not given.
        token: Key or token to show it; `POP_API_TOKEN` if not given.
        customer: Whose share tasks count against, if nothing else says so.
        customer_from: Says it of each enqueued task; wins over `customer`.
        on_commit: Whether a task is sent only once the transaction it is enqueued in is
            committed.
        database: Alias of the database whose transaction is meant.
        max_attempts: Of each task; None leaves it to its insight.
        packages: Besides those of installed apps, packages whose tasks a worker may import.
    """

    url: str
    token: str | None
    customer: str | None = None
    customer_from: CustomerOf | None = None
    on_commit: bool = True
    database: str = "default"
    max_attempts: int | None = None
    packages: tuple[str, ...] = ()

    @classmethod
    def read(cls, alias: str, given: Mapping[str, Any]) -> Self:
        """The options as the setting has them.

        Raises:
            ImproperlyConfigured: If one is unknown or of no use; says which and what helps.
        """
        known = {one.name.upper(): one.name for one in fields(cls)}
        place = f"TASKS[{alias!r}]['OPTIONS']"
        if unknown := sorted(set(given) - set(known)):
            msg = f"{place} has no option {unknown[0]!r}; there are {', '.join(sorted(known))}"
            raise ImproperlyConfigured(msg)
        values = {known[key]: value for key, value in given.items()}
        if not values.get("customer") and not values.get("customer_from"):
            msg = (
                f"{place} names no customer: set CUSTOMER to an id, or CUSTOMER_FROM to a "
                "function of task, args and kwargs that returns one"
            )
            raise ImproperlyConfigured(msg)
        named = values.get("customer_from")
        if isinstance(named, str):
            values["customer_from"] = _imported(named, f"{place}['CUSTOMER_FROM']")
        settings = Settings()
        values.setdefault("url", settings.api_url)
        shown = settings.api_token.get_secret_value() if settings.api_token else None
        values.setdefault("token", shown)
        values["packages"] = tuple(values.get("packages", ()))
        return cls(**values)


def _imported(name: str, place: str) -> CustomerOf:
    try:
        found: CustomerOf = import_string(name)
    except ImportError as error:
        msg = f"{place} = {name!r}: {error}; write the dotted path of a function"
        raise ImproperlyConfigured(msg) from None
    return found
