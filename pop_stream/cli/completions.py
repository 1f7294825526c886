"""`pop-stream complete`: end an operation that was handed over, by its token."""

import json
from typing import Annotated

import msgspec
import typer

from pop_stream.cli.calling import with_api
from pop_stream.cli.output import JsonFlag, console, emit
from pop_stream.operations.errors import UsageError


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
    try:
        content = json.loads(result)
    except ValueError as fault:
        msg = f"--result: is not JSON: {fault}"
        raise UsageError(msg) from None
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
