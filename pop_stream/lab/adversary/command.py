"""`pop-stream adversary`: search for a play that gets a customer more than its share."""

from typing import TYPE_CHECKING, Annotated

import typer

from pop_stream.cli.output import JsonFlag, console, emit
from pop_stream.operations.errors import UsageError

if TYPE_CHECKING:
    from pop_stream.lab.adversary.search import Findings


def adversary(
    seconds: Annotated[
        int, typer.Option(min=1, max=86_400, help="How long to search for.")
    ] = 60,
    seed: Annotated[int, typer.Option(help="Of all chance.")] = 1,
    scene: Annotated[
        str | None, typer.Option(help="Play once in this scene, and search for nothing.")
    ] = None,
    play: Annotated[
        str, typer.Option(metavar="GENE=VALUE...", help="What is played there; else honestly.")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Search for a play by which a customer gets more than its share of the real policy.

    Runs the policy in virtual time, and counts for itself who is served. Exits non-zero if any
    play gains more than the limits allow, or makes anybody wait longer than the stated bound.
    """
    found = _played(scene, play) if scene else _searched(seconds, seed)
    shown = console(as_json=as_json)
    shown.print(f"{found.tried} plays; those that came furthest:", soft_wrap=True)
    for one in found.shown:
        shown.print(f"  {one}", soft_wrap=True, markup=False)
    if as_json:
        emit(found.as_json())
    if found.is_beyond_a_limit:
        raise typer.Exit(1)


def _searched(seconds: int, seed: int) -> "Findings":
    from time import monotonic

    from pop_stream.lab.adversary.judgement import Court
    from pop_stream.lab.adversary.search import search

    until = monotonic() + seconds
    return search(seed, lambda tried: not tried or monotonic() < until, Court())


def _played(scene: str, line: str) -> "Findings":
    from pop_stream.lab.adversary.judgement import Court
    from pop_stream.lab.adversary.play import parse_play
    from pop_stream.lab.adversary.scenes import SCENES
    from pop_stream.lab.adversary.search import Findings

    if scene not in SCENES:
        msg = f"--scene {scene}: there is none of that name; use one of {', '.join(SCENES)}"
        raise UsageError(msg)
    try:
        play = parse_play(line)
    except ValueError as error:
        msg = f"--play: {error}"
        raise UsageError(msg) from None
    found = Findings()
    found.note(Court().judge(scene, SCENES[scene], play))
    return found
