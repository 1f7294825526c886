"""`pop-stream key …`, on the machine that holds the database: how the first key is made."""

import asyncio
import getpass
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from pop_stream.cli.output import JsonFlag, console, emit
from pop_stream.model.identity import ANYONE, Role
from pop_stream.operations.errors import UsageError

if TYPE_CHECKING:
    from pop_stream.model.api_keys import ApiKey
    from pop_stream.model.revisions import Author
    from pop_stream.postgres.keys import PostgresKeys

app = typer.Typer(
    name="key",
    help="Make, rotate, revoke and list API keys, in the database at POP_POSTGRES_DSN.",
    no_args_is_help=True,
)

_PAGE: Final = 500

T = TypeVar("T")


@app.command()
def create(
    role: Annotated[list[Role], typer.Option(help="What it may do; may be given again.")],
    customer: Annotated[
        str | None, typer.Option(metavar="ID", help="The customer it speaks for.")
    ] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="It speaks for every customer.")
    ] = False,
    title: Annotated[str, typer.Option(help="What it is for.")] = "",
    days: Annotated[
        int | None, typer.Option(min=1, max=3650, help="It ends after so many days.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a key; its token is shown once, and stored nowhere."""
    from pop_stream.auth.keys import make_key
    from pop_stream.clock import WallClock
    from pop_stream.model.api_keys import check_grant

    if (customer is None) is not operator:
        msg = "say whom the key speaks for: either --customer ID or --operator"
        raise UsageError(msg)
    now, author = WallClock().now(), _author()
    check_grant(ANYONE, customer, frozenset(role))
    key, token = make_key(
        customer_id=customer,
        roles=frozenset(role),
        now=now,
        created_by=author.principal.name,
        title=title,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    _with_keys(lambda keys: keys.create(key, author))
    _print_token(key, token, as_json=as_json)


@app.command()
def rotate(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key to replace.")],
    grace_minutes: Annotated[
        int, typer.Option(min=0, max=43_200, help="How long the old key goes on.")
    ] = 60,
    as_json: JsonFlag = False,
) -> None:
    """Make a key with the powers and expiry of another, which ends after a while."""
    from pop_stream.auth.keys import make_key
    from pop_stream.clock import WallClock

    author = _author()
    minted, token = make_key(
        customer_id=None,
        roles=frozenset({Role.READ}),  # the store gives it the old key's powers
        now=WallClock().now(),
        created_by=author.principal.name,
    )
    grace = timedelta(minutes=grace_minutes)
    new = _with_keys(lambda keys: keys.rotate(key_id, minted, author, grace=grace))
    _print_token(new, token, as_json=as_json)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key to end.")],
    as_json: JsonFlag = False,
) -> None:
    """End a key; every API process refuses it within two seconds."""
    from pop_stream.clock import WallClock

    at = WallClock().now()
    key = _with_keys(lambda keys: keys.revoke(key_id, _author(), at=at))
    if as_json:
        emit(_key_view(key, at))
    else:
        typer.echo(f"{key.id} is revoked")


@app.command("list")
def list_keys(
    customer: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this customer's.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List keys, revoked ones too; never their secrets."""
    from rich.table import Table

    from pop_stream.clock import WallClock

    now = WallClock().now()
    shown = [_key_view(key, now) for key in _with_keys(lambda keys: _all(keys, customer))]
    if as_json:
        emit({"keys": shown})
        return
    table = Table("id", "speaks for", "roles", "state", "title", box=None)
    for one in shown:
        whom = one["customer_id"] or "everyone"
        table.add_row(one["id"], whom, " ".join(one["roles"]), one["state"], one["title"])
    console().print(table)


async def _all(keys: "PostgresKeys", customer: str | None) -> "list[ApiKey]":
    found: list[ApiKey] = []
    while True:
        after = found[-1].id if found else ""
        page = await keys.keys(customer_id=customer, after=after, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


def _print_token(key: "ApiKey", token: str, *, as_json: bool) -> None:
    if as_json:
        emit({**_key_view(key, key.created_at), "token": token})
        return
    typer.echo(token)
    typer.echo("This is the only time it is shown: keep it where secrets are kept.", err=True)


def _key_view(key: "ApiKey", now: datetime) -> dict[str, Any]:
    fields = key.model_dump(mode="json", exclude={"secret_sha256"})
    return {**fields, "roles": sorted(key.roles), "state": key.state(now)}


def _author() -> "Author":
    from pop_stream.model.identity import ALL_ROLES, Principal
    from pop_stream.model.revisions import Author

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "unknown"
    principal = Principal(f"cli:{user}", None, ALL_ROLES)
    return Author(principal=principal, request_id=uuid.uuid4().hex)


def _with_keys(work: "Callable[[PostgresKeys], Awaitable[T]]") -> T:
    from pop_stream.composition.auth import open_keys
    from pop_stream.operations import logging

    settings = logging.configure_console_logging()

    async def run() -> T:
        async with open_keys(settings) as keys:
            return await work(keys)

    return asyncio.run(run())
