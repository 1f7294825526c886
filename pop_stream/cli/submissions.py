"""What `submit`, `progress` and `watch` do, and how agendas and links look on a terminal."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Final

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pop_stream.api_models.agendas import AgendaProgress, LinkView
from pop_stream.api_models.submissions import (
    AcceptedAgenda,
    SubmissionResult,
    SubmissionResults,
)
from pop_stream.cli.output import console, emit
from pop_stream.client.client import Client
from pop_stream.client.errors import (
    ApiNotFoundError,
    ApiRateLimitedError,
    ApiUnavailableError,
    refusal_lines,
)
from pop_stream.composition.client import open_client
from pop_stream.policy.lifecycle.states import State

_COLOURS: Final[Mapping[str, str]] = {
    "succeeded": "green",
    "failed": "red",
    "refused": "red",
    "running": "cyan",
}
_BAR: Final = 30


def view(found: AgendaProgress | LinkView) -> RenderableType:
    """A link's roll-up or an agenda's progress, whichever it is."""
    return link_view(found) if isinstance(found, LinkView) else progress_view(found)


def progress_view(found: AgendaProgress) -> RenderableType:
    """An agenda with one bar per operation."""
    rows = Table.grid(padding=(0, 2))
    for one in found.operations:
        text = one.message or "; ".join(diagnostic.message for diagnostic in one.diagnostics)
        rows.add_row(
            one.name, _state(one.state), _bar(one.state, one.percent), Text(text, "dim")
        )
    attempt = f", attempt {found.attempt}" if found.attempt > 1 else ""
    head = Text.assemble(
        (found.id, "bold"),
        "  ",
        _state(found.state.value),
        f"  {found.percent:.0f}%{attempt}",
    )
    parts: list[RenderableType] = [head, rows]
    if found.message:
        parts.append(Text(found.message, "red"))
    return Group(*parts)


def link_view(found: LinkView) -> RenderableType:
    """A link: how many of its agendas are in which state."""
    rows = Table.grid(padding=(0, 2))
    for state, count in found.counts.items():
        share = 100 * count / found.total
        rows.add_row(_state(state.value), str(count), _bar(state.value, share))
    head = Text.assemble(
        (found.link_id, "bold"),
        "  ",
        _state(found.state.value),
        f"  {found.percent:.0f}% of {found.total} agendas",
    )
    return Group(head, rows)


def _state(state: str) -> Text:
    return Text(state, _COLOURS.get(state, "yellow"))


def _bar(state: str, percent: float) -> ProgressBar:
    colour = _COLOURS.get(state, "yellow")
    return ProgressBar(
        total=100,
        completed=percent,
        width=_BAR,
        complete_style=colour,
        finished_style=colour,
    )


_LOOK_EVERY_S: Final = 0.25
_APPEARS_WITHIN_S: Final = 60.0
_LOOKS_AT_ONCE: Final = 8


async def submit(body: bytes, *, wait: bool, as_json: bool) -> None:
    """Submit JSON text, and wait for the end if that is wanted.

    Raises:
        ApiError: If nothing was accepted.
        Exit: With 1 if something was refused or did not succeed.
    """
    async with open_client() as client:
        result = await _send(client, body)
        accepted = [str(one.id) for one in _accepted(result)]
        states = await _wait(client, accepted) if wait else {}
    if as_json:
        fields = json.loads(msgspec.json.encode(result))
        emit(
            {**fields, "states": {k: one.value for k, one in states.items()}}
            if wait
            else fields
        )
    else:
        _show_submitted(result, states)
    failed = sum(state is not State.SUCCEEDED for state in states.values())
    if failed or (isinstance(result, SubmissionResults) and result.refused):
        raise typer.Exit(1)


async def _send(client: Client, body: bytes) -> AcceptedAgenda | SubmissionResults:
    """Submit JSON text as it is: what is wrong with it, the API says best."""
    try:
        several = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return await client.submit(msgspec.Raw(body))
    return await client.submit_many(several)


async def progress(agenda_id: str, *, as_json: bool) -> None:
    """Show how far an agenda is."""
    async with open_client() as client:
        found = await client.progress(agenda_id)
    if as_json:
        emit(found)
    else:
        console().print(progress_view(found))


async def watch(agenda_id: str | None, link_id: str | None, *, as_json: bool) -> None:
    """Follow an agenda, or a link, to the end.

    Raises:
        Exit: With 1 if it did not succeed.
    """
    shown = console(as_json=as_json)
    moving = Live(console=shown, refresh_per_second=10)
    async with open_client() as client:
        summaries = client.follow(agenda_id) if agenda_id else client.follow_link(link_id or "")
        with moving if shown.is_terminal else nullcontext():
            async for last in summaries:
                moving.update(view(last))
                if last.state.is_terminal:
                    break
    if as_json:
        emit(last)
    elif not shown.is_terminal:
        shown.print(view(last))
    if last.state is not State.SUCCEEDED:
        raise typer.Exit(1)


async def _wait(client: Client, agenda_ids: Sequence[str]) -> dict[str, State]:
    """The final state of each agenda; many are looked at in turn, a few at once."""
    turn = asyncio.Semaphore(_LOOKS_AT_ONCE)

    async def final_state(agenda_id: str) -> State:
        async with turn:
            return await _final_state(client, agenda_id)

    async with asyncio.TaskGroup() as tasks:
        waits = {one: tasks.create_task(final_state(one)) for one in agenda_ids}
    return {agenda_id: task.result() for agenda_id, task in waits.items()}


async def _final_state(client: Client, agenda_id: str) -> State:
    unseen_until = asyncio.get_running_loop().time() + _APPEARS_WITHIN_S
    while True:
        try:
            state = (await client.agenda(agenda_id)).state
        except (ApiNotFoundError, ApiRateLimitedError, ApiUnavailableError):
            # What was accepted just now is in Kafka before it is in a summary.
            if asyncio.get_running_loop().time() > unseen_until:
                raise
        else:
            if state.is_terminal:
                return state
        await asyncio.sleep(_LOOK_EVERY_S)


def _accepted(
    result: AcceptedAgenda | SubmissionResults,
) -> Sequence[AcceptedAgenda | SubmissionResult]:
    if isinstance(result, AcceptedAgenda):
        return [result]
    return [one for one in result.results if not one.issues]


def _show_submitted(
    result: AcceptedAgenda | SubmissionResults, states: dict[str, State]
) -> None:

    for one in _accepted(result):
        state = states.get(str(one.id), State.ACCEPTED)
        typer.echo(f"{one.id}  {state.value}  insight {one.insight_id}")
    for refused in [] if isinstance(result, AcceptedAgenda) else result.results:
        for line in refusal_lines(refused):
            typer.echo(line, err=True)
