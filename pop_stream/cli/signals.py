"""`pop-stream signals …` and `complete`: end what work waits for, over the HTTP API."""

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
    content = _parsed(payload, "--payload")
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


def complete(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="As it was handed over.")],
    result: Annotated[
        str, typer.Option(metavar="JSON", help="Of the operation, in success.")
    ] = "null",
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why it failed, if it did.")
    ] = None,
    final: Annotated[
        bool, typer.Option("--final", help="With --error: no other attempt can help.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Complete an operation that was handed over; its token is enough, no key is needed."""
    content = _parsed(result, "--result")
    if (error is None and final) or (error is not None and content is not None):
        msg = "--error and --result exclude each other, and --final goes with --error"
        raise UsageError(msg)
    completed = with_api(
        lambda client: (
            client.completions.succeed(token, content)
            if error is None
            else client.completions.fail(token, error, retryable=not final)
        )
    )
    if as_json:
        emit(msgspec.to_builtins(completed))
    else:
        console().print(f"{completed.operation} has {completed.outcome}")


def _parsed(text: str, option: str) -> Any:  # noqa: ANN401  # JSON
    try:
        return json.loads(text)
    except ValueError as error:
        msg = f"{option}: is not JSON: {error}"
        raise UsageError(msg) from None
