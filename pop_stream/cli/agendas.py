"""Clients of the HTTP API: `submit`, `progress` and `watch`."""

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from pop_stream.cli.errors import CommandError, UsageError
from pop_stream.cli.output import JsonFlag, console, emit

if TYPE_CHECKING:
    from pop_stream.cli.client import ApiClient

TERMINAL: Final = frozenset({"succeeded", "failed", "refused", "cancelled", "expired"})

_LOOK_EVERY_S: Final = 0.25
_APPEARS_WITHIN_S: Final = 60.0
_LOOKS_AT_ONCE: Final = 8

T = TypeVar("T")


def submit(
    file: Annotated[
        Path, typer.Argument(help="JSON of one agenda or a list of them; - reads it here.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all have ended; exit 1 if any failed.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit an agenda, or a list of them, to the API at POP_API_URL."""
    _with_api(_submit(_read(file), wait=wait, as_json=as_json))


def progress(
    agenda_id: Annotated[str, typer.Argument(metavar="ID", help="The agenda's id.")],
    as_json: JsonFlag = False,
) -> None:
    """Show how far an agenda is, operation by operation."""
    _with_api(_progress(agenda_id, as_json=as_json))


def watch(
    agenda_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The agenda's id.")
    ] = None,
    link: Annotated[str | None, typer.Option(help="Watch all agendas of a link id.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Follow an agenda, or all agendas of a link, until the end; exit 1 if it failed."""
    if (agenda_id is None) == (link is None):
        msg = "name either an agenda's id or a link with --link"
        raise UsageError(msg)
    path = ("agendas", agenda_id or "") if link is None else ("links", link)
    _with_api(_watch(path, as_json=as_json))


async def _submit(body: bytes, *, wait: bool, as_json: bool) -> None:
    async with _client() as client:
        result = await client.submit(body)
        accepted = [one["id"] for one in _accepted(result)]
        states: dict[str, str] = {}
        if wait:
            states = await _wait(client, accepted)
            result = {**result, "states": states}
    if as_json:
        emit(result)
    else:
        _show_submitted(result, states)
    failed = sum(state != "succeeded" for state in states.values())
    if failed or result.get("refused"):
        raise typer.Exit(1)


async def _progress(agenda_id: str, *, as_json: bool) -> None:
    from pop_stream.cli.views import progress_view

    async with _client() as client:
        found = await client.get("agendas", agenda_id, "progress")
    if as_json:
        emit(found)
    else:
        console().print(progress_view(found))


async def _watch(path: tuple[str, str], *, as_json: bool) -> None:
    from rich.live import Live

    from pop_stream.cli.views import view

    shown = console(as_json=as_json)
    last: dict[str, Any] | None = None
    moving = Live(console=shown, refresh_per_second=10)
    async with _client() as client:
        with moving if shown.is_terminal else nullcontext():
            async for last in client.follow(*path, "events"):
                moving.update(view(last))
                if last["state"] in TERMINAL:
                    break
    if last is None or last["state"] not in TERMINAL:
        msg = "the API ended the stream early; the work goes on"
        raise CommandError(msg)
    if as_json:
        emit(last)
    elif not shown.is_terminal:
        shown.print(view(last))
    if last["state"] != "succeeded":
        raise typer.Exit(1)


async def _wait(client: "ApiClient", agenda_ids: Sequence[str]) -> dict[str, str]:
    """The final state of each agenda; many are looked at in turn, a few at once."""
    turn = asyncio.Semaphore(_LOOKS_AT_ONCE)

    async def final_state(agenda_id: str) -> str:
        async with turn:
            return await _final_state(client, agenda_id)

    async with asyncio.TaskGroup() as tasks:
        waits = {one: tasks.create_task(final_state(one)) for one in agenda_ids}
    return {agenda_id: task.result() for agenda_id, task in waits.items()}


async def _final_state(client: "ApiClient", agenda_id: str) -> str:
    from pop_stream.cli.client import ApiError

    unseen_until = asyncio.get_running_loop().time() + _APPEARS_WITHIN_S
    while True:
        try:
            state = str((await client.get("agendas", agenda_id))["state"])
        except ApiError as error:
            # What was accepted just now is in Kafka before it is in a summary.
            late = asyncio.get_running_loop().time() > unseen_until
            may_appear = error.status == HTTPStatus.NOT_FOUND
            if late or not (may_appear or error.retry_after_s is not None):
                raise
        else:
            if state in TERMINAL:
                return state
        await asyncio.sleep(_LOOK_EVERY_S)


def _accepted(result: dict[str, Any]) -> list[dict[str, Any]]:
    if "results" not in result:
        return [result]
    return [one for one in result["results"] if not one.get("issues")]


def _show_submitted(result: dict[str, Any], states: dict[str, str]) -> None:
    from pop_stream.cli.client import refusal_lines

    for one in _accepted(result):
        state = states.get(one["id"], "accepted")
        typer.echo(f"{one['id']}  {state}  insight {one['insight_id']}")
    for one in result.get("results", ()):
        for line in refusal_lines(one):
            typer.echo(line, err=True)


def _read(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise UsageError(msg) from None


def _client() -> "ApiClient":
    from pop_stream.cli.client import ApiClient
    from pop_stream.cli.environment import load_settings

    return ApiClient.of(load_settings())


def _with_api(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
