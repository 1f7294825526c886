"""`pop-stream chaos`: kill and freeze parts at random under load, then audit everything."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pop_stream.cli.output import JsonFlag, table
from pop_stream.lab.bench.options import Folder, Processes
from pop_stream.lab.reporting import measure_and_report

if TYPE_CHECKING:
    from pop_stream.lab.chaos.faults import FaultCounts
    from pop_stream.lab.chaos.hostile import HostileResult
    from pop_stream.lab.chaos.run import ChaosConfig, ChaosResult


_USUAL_KILLS = 10

Kills = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=1_000,
        help=f"kill -9 of parts: {_USUAL_KILLS}, or none with --rolling.",
        show_default=False,
    ),
]
Seed = Annotated[int | None, typer.Option(help="Of load and faults; else made up.")]
Seconds = Annotated[
    float, typer.Option(min=5, max=86_400, help="How long load and faults go on.")
]
Rate = Annotated[float, typer.Option(min=1, max=10_000, help="Agendas submitted per second.")]
Freezes = Annotated[
    int, typer.Option(min=0, max=1_000, help="Parts stopped by SIGSTOP for a while.")
]
Brokers = Annotated[int, typer.Option(help="1, or 3 that replicate.")]
BrokerKills = Annotated[
    int, typer.Option(min=0, max=1_000, help="kill -9 of a broker, brought back later.")
]
BrokerFreezes = Annotated[
    int, typer.Option(min=0, max=1_000, help="A broker stopped by SIGSTOP for a while.")
]
DatabaseStops = Annotated[
    int, typer.Option(min=0, max=1_000, help="kill -9 of Postgres, brought back later.")
]
Settle = Annotated[
    float, typer.Option(min=1, help="Seconds that all may take to end afterwards.")
]


Rolling = Annotated[
    bool,
    typer.Option("--rolling", help="Replace every part in turn, then in reverse order."),
]
Schedules = Annotated[
    int, typer.Option(min=0, max=1_000, help="Schedules that fire every second meanwhile.")
]

Hostile = Annotated[
    bool, typer.Option("--hostile", help="A customer attacks; no part is killed.")
]


def chaos(  # noqa: PLR0913, PLR0917  # one option each
    kills: Kills = None,
    seed: Seed = None,
    seconds: Seconds = 60.0,
    rate: Rate = 40.0,
    freezes: Freezes = 0,
    brokers: Brokers = 1,
    broker_kills: BrokerKills = 0,
    broker_freezes: BrokerFreezes = 0,
    database_stops: DatabaseStops = 0,
    pullers: Processes = 2,
    schedulers: Processes = 2,
    settle: Settle = 120.0,
    rolling: Rolling = False,
    schedules: Schedules = 0,
    hostile: Hostile = False,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Kill parts at random under load, then compare what was accepted with what ended.

    Starts everything on this machine, submits work of several customers over HTTP and over
    Kafka, and judges by Kafka's records, Postgres' rows and a file that handlers append to.
    Exits non-zero if a promise was broken. The same seed makes the same load and faults.

    With --schedules some fire every second meanwhile. Promised is that every instant is run
    once: counted from Kafka, from the summaries, and from the list of occurrences.

    With --rolling parts are upgraded and rolled back: one after the other is stopped by
    SIGTERM, and replaced by a new process that must be ready before the next one stops. Then
    no round may be repeated, and no agenda needs a second attempt.

    With --hostile nothing is killed. One customer submits at the rate, at first alone for a
    quarter of the time; then another one attacks with an ordinary key. Promised is that the
    first one's waits stay within twice what they were, that nothing of it is lost, and that no
    part ends.
    """
    import secrets

    from pop_stream.lab.chaos.faults import FaultCounts
    from pop_stream.operations import logging

    _check_brokers(brokers)
    logging.configure_console_logging()
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    if hostile:
        _chaos_by_customer(chosen, seconds, rate, folder, as_json=as_json)
        return
    if kills is None:
        kills = 0 if rolling else _USUAL_KILLS
    counts = FaultCounts(
        seconds, kills, freezes, broker_kills, database_stops, broker_freezes, rolling
    )
    shape = (chosen, rate, brokers, pullers, schedulers, settle, schedules)
    _chaos_by_faults(counts, shape, folder, as_json=as_json)


def _chaos_by_faults(
    counts: "FaultCounts",
    shape: tuple[int, float, int, int, int, float, int],
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    from pop_stream.lab.bench.conditions import data_folder
    from pop_stream.lab.chaos.run import ChaosConfig, run_chaos

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        with data_folder(folder) as place:
            config = ChaosConfig(place, counts, *shape)
            on_progress(f"to see it again: {rerun_command(config)}")
            return report(config, await run_chaos(config, on_progress))

    if measure_and_report(measure, _view, as_json=as_json)["broken"]:
        raise typer.Exit(1)


def _chaos_by_customer(
    seed: int, seconds: float, rate: float, folder: Path | None, *, as_json: bool
) -> None:
    from pop_stream.lab.bench.conditions import data_folder
    from pop_stream.lab.chaos.hostile import HostileOptions, run_hostile

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        with data_folder(folder) as place:
            options = HostileOptions(place, seed, seconds / 4, seconds * 3 / 4, rate)
            return {**hostile_report(await run_hostile(options, on_progress)), "seed": seed}

    if measure_and_report(measure, _hostile_view, as_json=as_json)["broken"]:
        raise typer.Exit(1)


def hostile_report(found: "HostileResult") -> Mapping[str, Any]:
    """What a run with a hostile customer found, and the promises it broke."""
    from pop_stream.lab.bench.figures import percentiles_ms

    return {
        "alone_ms": percentiles_ms(found.alone),
        "attacked_ms": percentiles_ms(found.attacked),
        "ratio_p99": round(found.ratio, 3),
        "submitted": len(found.alone) + len(found.attacked),
        "lost": len(found.unended),
        "refused": len(found.refused),
        "restarts": dict(found.restarts),
        "server_errors": dict(found.server_errors),
        "answers": dict(found.answers),
        "rss_mb": {part: [*sizes] for part, sizes in sorted(found.rss_mb.items())},
        "broken": [*found.broken()],
    }


def _hostile_view(result: Mapping[str, Any]) -> Iterator[Any]:
    yield table(
        ("attack and answer", "#times"),
        [(answer, f"{times:,}") for answer, times in result["answers"].items()],
    )
    yield table(
        ("part", "#MB before", "#MB after"),
        [(part, *(f"{one:.0f}" for one in mb)) for part, mb in result["rss_mb"].items()],
    )
    alone, attacked = result["alone_ms"], result["attacked_ms"]
    yield (
        f"quiet customer: {result['submitted']:,} agendas, [bold]lost {result['lost']}[/], "
        f"refused {result['refused']}; due to start p50 {alone['p50']} and p99 {alone['p99']} "
        f"ms alone, {attacked['p50']} and {attacked['p99']} ms under attack"
    )
    for one in result["broken"]:
        yield f"[red]✗[/] {one}"
    if not result["broken"]:
        yield "[green]✓[/] every promise held"


def _check_brokers(brokers: int) -> None:
    from pop_stream.operations.errors import UsageError

    if brokers not in {1, 3}:
        msg = f"--brokers {brokers}: run 1, or 3 that replicate to each other"
        raise UsageError(msg)


def rerun_command(chaos: "ChaosConfig") -> str:
    """The command that makes the same load and the same faults."""
    wanted = chaos.wanted
    return (
        f"pop-stream chaos --kills {wanted.kills} --seed {chaos.seed} "
        f"--seconds {wanted.seconds:g} --rate {chaos.rate_per_s:g} "
        f"--freezes {wanted.freezes} --brokers {chaos.brokers} "
        f"--broker-kills {wanted.broker_kills} --broker-freezes {wanted.broker_freezes} "
        f"--database-stops {wanted.database_stops} "
        f"--pullers {chaos.pullers} --schedulers {chaos.schedulers} "
        f"--schedules {chaos.schedules}"
        f"{' --rolling' if wanted.rolling else ''}"
    )


def report(chaos: "ChaosConfig", outcome: "ChaosResult") -> Mapping[str, Any]:
    """The contract's figures, and all that led to them."""
    judged = outcome.verdict
    hit = Counter(f"{one.fault.kind} {one.fault.part}" for one in outcome.injected)
    broken = [*judged.broken()]
    if outcome.refused:
        broken.append(f"{len(outcome.refused)} submissions were refused: {_one_line(outcome)}")
    scheduled = outcome.schedules
    broken += scheduled.broken() if scheduled else ()
    return {
        "occurrences": scheduled.expected if scheduled else 0,
        "occurrences_missing": len(scheduled.missing) if scheduled else 0,
        "occurrences_run_again": len(scheduled.run_again) if scheduled else 0,
        "accepted": judged.accepted,
        "terminal": judged.terminal,
        "lost": len(judged.lost),
        "failed": judged.failed,
        "refused": judged.refused,
        "duplicate_starts": judged.duplicate_starts,
        "worst_pause_s": round(judged.worst_pause_s, 3),
        "longest_wait_s": round(judged.longest_wait_s, 3),
        "duplicate_starts_after_faults": judged.excused_starts,
        "rounds_repeated": judged.rounds_repeated,
        "starts": outcome.starts,
        "most_attempts": outcome.attempts,
        "disagreeing": len(judged.disagreeing),
        "dead_letters": outcome.dead_letters,
        "settled_s": round(outcome.settled_s, 1),
        "faults": dict(sorted(hit.items())),
        "next_start_s": dict(judged.recovery_s),
        "replaced_s": _replaced_s(outcome),
        "lost_agendas": list(judged.lost[:50]),
        "broken": broken,
        "seed": chaos.seed,
        "rerun_command": rerun_command(chaos),
    }


def _replaced_s(outcome: "ChaosResult") -> Mapping[str, float]:
    """By part, the longest from the request to stop until its successor was ready."""
    longest: dict[str, float] = {}
    for one in outcome.injected:
        if one.fault.kind == "replace":
            part = one.fault.part
            longest[part] = max(longest.get(part, 0.0), round(one.until - one.at, 3))
    return longest


def _one_line(outcome: "ChaosResult") -> str:
    agenda_id, answer = next(iter(outcome.refused.items()))
    return f"{agenda_id}: {answer}"


def _view(result: Mapping[str, Any]) -> Iterator[Any]:
    yield table(
        ("fault", "#times", "#longest until a start, s"),
        [
            (fault, str(times), f"{result['next_start_s'].get(fault.split(' ')[1], 0):.1f}")
            for fault, times in result["faults"].items()
        ],
    )
    yield (
        f"accepted {result['accepted']:,}, ended {result['terminal']:,}, "
        f"[bold]lost {result['lost']}[/], attempts started twice {result['duplicate_starts']} "
        f"(and {result['duplicate_starts_after_faults']} after faults), "
        f"worst pause {result['worst_pause_s']:.1f} s"
    )
    if result["occurrences"]:
        yield (
            f"of schedules {result['occurrences']:,} occurrences, "
            f"[bold]missing {result['occurrences_missing']}[/], run again "
            f"{result['occurrences_run_again']}"
        )
    for one in result["broken"]:
        yield f"[red]✗[/] {one}"
    yield (
        f"[dim]again: {result['rerun_command']}[/]"
        if result["broken"]
        else "[green]✓[/] every promise held"
    )
