"""`pop-stream signals …`: give and list signals, over the HTTP API."""

import json
from typing import Annotated, Any

import msgspec
import typer

from pop_stream.cli.calling import with_api
from pop_stream.cli.output import JsonFlag, console, emit, table
from pop_stream.operations.errors import UsageError

app = typer.Typer(
    name="signals", help="Give signals that work waits for.", no_args_is_help=True
)

Customer = Annotated[
    str | None, typer.Option(metavar="ID", help="Whose; a customer's own if left out.")
]


@app.command()
def give(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the signal.")],
    payload: Annotated[
        str, typer.Option(metavar="JSON", help="Becomes the result of what waits for it.")
    ] = "null",
    customer: Customer = None,
    keep_s: Annotated[
        float | None,
        typer.Option(min=0, help="So long it also ends waits that begin after it; a day."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Give a signal: operations and agendas that wait for it go on."""
    content = _parsed(payload)
    given = with_api(
        lambda client: client.signals.give(name, content, customer_id=customer, keep_s=keep_s)
    )
    if as_json:
        emit(msgspec.to_builtins(given))
    else:
        console().print(f"{given.name} of {given.customer_id}, until {given.expires_at}")


@app.command("list")
def list_signals(customer: Customer = None, as_json: JsonFlag = False) -> None:
    """Show the signals that are kept."""
    kept = with_api(lambda client: client.signals.list(customer_id=customer))
    if as_json:
        emit({"signals": msgspec.to_builtins(kept)})
        return
    rows = [(one.customer_id, one.name, str(one.given_at), str(one.expires_at)) for one in kept]
    console().print(table(("customer", "name", "given", "until"), rows))


def _parsed(payload: str) -> Any:  # noqa: ANN401  # JSON
    try:
        return json.loads(payload)
    except ValueError as error:
        msg = f"--payload: is not JSON: {error}"
        raise UsageError(msg) from None
