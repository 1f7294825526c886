"""`pop-stream chaos`: kill and freeze parts at random under load, then audit everything."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pop_stream.cli.output import JsonFlag, console, emit, table

if TYPE_CHECKING:
    from pop_stream.lab.chaos.run import ChaosConfig, ChaosResult


def chaos(  # noqa: PLR0913, PLR0917  # one option each
    kills: Annotated[int, typer.Option(min=0, max=1_000, help="kill -9 of parts.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Of load and faults; else made up.")] = None,
    seconds: Annotated[
        float, typer.Option(min=5, max=86_400, help="How long load and faults go on.")
    ] = 60.0,
    rate: Annotated[
        float, typer.Option(min=1, max=10_000, help="Agendas submitted per second.")
    ] = 40.0,
    freezes: Annotated[
        int, typer.Option(min=0, max=1_000, help="Parts stopped by SIGSTOP for a while.")
    ] = 0,
    brokers: Annotated[int, typer.Option(help="1, or 3 that replicate.")] = 1,
    broker_kills: Annotated[
        int, typer.Option(min=0, max=1_000, help="kill -9 of a broker, brought back later.")
    ] = 0,
    broker_freezes: Annotated[
        int, typer.Option(min=0, max=1_000, help="A broker stopped by SIGSTOP for a while.")
    ] = 0,
    database_stops: Annotated[
        int, typer.Option(min=0, max=1_000, help="kill -9 of Postgres, brought back later.")
    ] = 0,
    pullers: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 2,
    schedulers: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 2,
    settle: Annotated[
        float, typer.Option(min=1, help="Seconds that all may take to end afterwards.")
    ] = 120.0,
    folder: Annotated[
        Path | None, typer.Option(help="Keep data and logs here; else nothing is kept.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Kill parts at random under load, then compare what was accepted with what ended.

    Starts everything on this machine, submits work of several customers over HTTP and over
    Kafka, and judges by Kafka's records, Postgres' rows and a file that handlers append to.
    Exits non-zero if a promise was broken. The same seed makes the same load and blows.
    """
    import secrets

    from pop_stream.lab.bench.conditions import data_folder
    from pop_stream.lab.chaos.faults import FaultCounts
    from pop_stream.lab.chaos.run import ChaosConfig, run_chaos
    from pop_stream.operations import logging
    from pop_stream.operations.errors import CommandError, UsageError
    from pop_stream.operations.lifetime import run_until_interrupted

    if brokers not in {1, 3}:
        msg = f"--brokers {brokers}: run 1, or 3 that replicate to each other"
        raise UsageError(msg)
    logging.configure_console_logging()
    shown = console(as_json=as_json)
    broken: list[str] = []

    async def run() -> None:
        with data_folder(folder) as place:
            wanted = ChaosConfig(
                folder=place,
                wanted=FaultCounts(
                    seconds, kills, freezes, broker_kills, database_stops, broker_freezes
                ),
                seed=secrets.randbelow(1_000_000) if seed is None else seed,
                rate_per_s=rate,
                brokers=brokers,
                pullers=pullers,
                schedulers=schedulers,
                settle_s=settle,
            )
            shown.print(f"to see it again: {rerun_command(wanted)}")
            outcome = await run_chaos(
                wanted, lambda line: shown.print(f"[dim]{line}[/]", soft_wrap=True)
            )
        result = report(wanted, outcome)
        broken.extend(result["broken"])
        for line in _view(result):
            shown.print(line, soft_wrap=True)
        if as_json:
            emit(result)

    if run_until_interrupted(run()):
        msg = "interrupted; everything was stopped"
        raise CommandError(msg)
    if broken:
        raise typer.Exit(1)


def rerun_command(chaos: "ChaosConfig") -> str:
    """The command that makes the same load and the same blows."""
    wanted = chaos.wanted
    return (
        f"pop-stream chaos --kills {wanted.kills} --seed {chaos.seed} "
        f"--seconds {wanted.seconds:g} --rate {chaos.rate_per_s:g} "
        f"--freezes {wanted.freezes} --brokers {chaos.brokers} "
        f"--broker-kills {wanted.broker_kills} --broker-freezes {wanted.broker_freezes} "
        f"--database-stops {wanted.database_stops} "
        f"--pullers {chaos.pullers} --schedulers {chaos.schedulers}"
    )


def report(chaos: "ChaosConfig", outcome: "ChaosResult") -> Mapping[str, Any]:
    """The contract's figures, and all that led to them."""
    judged = outcome.verdict
    hit = Counter(f"{one.fault.kind} {one.fault.part}" for one in outcome.injected)
    broken = [*judged.broken()]
    if outcome.refused:
        broken.append(f"{len(outcome.refused)} submissions were refused: {_one_line(outcome)}")
    return {
        "accepted": judged.accepted,
        "terminal": judged.terminal,
        "lost": len(judged.lost),
        "failed": judged.failed,
        "refused": judged.refused,
        "duplicate_starts": judged.duplicate_starts,
        "worst_pause_s": round(judged.worst_pause_s, 3),
        "longest_wait_s": round(judged.longest_wait_s, 3),
        "duplicate_starts_after_blows": judged.excused_starts,
        "rounds_repeated": judged.rounds_repeated,
        "starts": outcome.starts,
        "most_attempts": outcome.attempts,
        "disagreeing": len(judged.disagreeing),
        "dead_letters": outcome.dead_letters,
        "settled_s": round(outcome.settled_s, 1),
        "blows": dict(sorted(hit.items())),
        "next_start_s": dict(judged.recovery_s),
        "lost_agendas": list(judged.lost[:50]),
        "broken": broken,
        "seed": chaos.seed,
        "again": rerun_command(chaos),
    }


def _one_line(outcome: "ChaosResult") -> str:
    agenda_id, answer = next(iter(outcome.refused.items()))
    return f"{agenda_id}: {answer}"


def _view(result: Mapping[str, Any]) -> Iterator[Any]:
    yield table(
        ("blow", "#times", "#longest until a start, s"),
        [
            (fault, str(times), f"{result['next_start_s'].get(fault.split(' ')[1], 0):.1f}")
            for fault, times in result["blows"].items()
        ],
    )
    yield (
        f"accepted {result['accepted']:,}, ended {result['terminal']:,}, "
        f"[bold]lost {result['lost']}[/], attempts started twice {result['duplicate_starts']} "
        f"(and {result['duplicate_starts_after_blows']} after blows), "
        f"worst pause {result['worst_pause_s']:.1f} s"
    )
    for one in result["broken"]:
        yield f"[red]✗[/] {one}"
    yield (
        f"[dim]again: {result['rerun_command']}[/]"
        if result["broken"]
        else "[green]✓[/] all kept"
    )
