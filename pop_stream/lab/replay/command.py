"""`pop-stream replay`: recorded rounds chosen again, as they were or with other weights."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pop_stream.cli.output import JsonFlag, console, emit

if TYPE_CHECKING:
    from pop_stream.lab.replay.decisions_log import DecisionHistory
    from pop_stream.model.ids import CustomerId

Weights = Annotated[
    str | None,
    typer.Option(
        help="Other weights to try: `acme=2,globex=0.5`. Without it, check the record."
    ),
]


def replay(
    insight: Annotated[str, typer.Option(help="The insight whose rounds to choose again.")],
    weights: Weights = None,
    as_json: JsonFlag = False,
) -> None:
    """Choose an insight's recorded rounds again, exactly, or with other weights."""
    from pop_stream.lab.replay.decisions_log import read_history
    from pop_stream.lab.weights import parse_weights
    from pop_stream.operations.environment import load_console_settings
    from pop_stream.operations.errors import CommandError

    wanted = parse_weights(weights)
    history = read_history(load_console_settings(), insight, figures=False)
    decided, begun = history.decisions[0].round, [one.round for one in history.beginnings]
    if decided != 1 and not begun:
        msg = (
            f"the record of {insight} starts at round {decided}, but what was waiting then is "
            "not on it, nor is a checkpoint after it of which pop.ready holds all; one is "
            "written with a round when the last is 10 minutes old"
        )
        raise CommandError(msg)
    first = min(begun) if decided != 1 else 1
    shown = console(as_json=as_json)
    shown.print(f"from round {first} on, as far back as the record goes")
    outcome = _try(history, wanted, shown) if wanted else _check(history, shown)
    accuracy = _accuracy(history, first, shown)
    if as_json:
        emit({**outcome, "from_round": first, **accuracy})
    raise typer.Exit(1 if outcome.get("different") else 0)


def _check(history: "DecisionHistory", shown: Console) -> Mapping[str, Any]:
    from pop_stream.lab.replay.replay import replay as choose_again

    rounds = [
        *choose_again(
            history.inputs, history.decisions, history.definitions_at, history.beginnings
        )
    ]
    different = [one.recorded.round for one in rounds if not one.is_same]
    agendas = sum(len(one.recorded.chosen) for one in rounds)
    verdict = f"{len(different)} differ, first {different[0]}" if different else "all the same"
    shown.print(f"{len(rounds)} rounds with {agendas} agendas: {verdict}")
    return {"rounds": len(rounds), "agendas": agendas, "different": different}


def _accuracy(history: "DecisionHistory", first: int, shown: Console) -> Mapping[str, Any]:
    """What could not be read, and from which round on the result may differ for it."""
    from pop_stream.lab.replay.replay import first_inexact_round

    skipped = [*history.unreadable]
    for one in skipped:
        where = f"{one.topic}, partition {one.partition}, offset {one.offset}"
        shown.print(f"skipped: {where}: {one.reason}", markup=False)
    chosen_again = [one for one in history.decisions if one.round >= first]
    inexact = first_inexact_round(chosen_again, skipped)
    if inexact is not None:
        at = inexact.at.isoformat()
        shown.print(
            f"from round {inexact.round}, {at}, on it is not sure to be exact: a round is "
            "missing, or something that the scheduler may have been able to read"
        )
    elif skipped:
        shown.print("none of the rounds needs what was skipped")
    return {
        "unreadable": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "reason": one.reason,
            }
            for one in skipped
        ],
        "exact_before": inexact and {"round": inexact.round, "at": inexact.at.isoformat()},
    }


def _try(
    history: "DecisionHistory", weights: Mapping["CustomerId", float], shown: Console
) -> Mapping[str, Any]:
    from pop_stream.lab.replay.what_if import CustomerOutcome, recorded_outcomes, what_if
    from pop_stream.operations.errors import CommandError

    inputs, rounds, known_states = history.inputs, history.decisions, history.beginnings
    before = recorded_outcomes(inputs, rounds, known_states)
    after = what_if(inputs, rounds, history.definitions_at, weights, known_states)
    known = sorted({*before, *after})
    if unknown := sorted({*weights} - {*known}):
        names = ", ".join(known)
        msg = f"--weights: no round chose anything of {unknown[0]!r}; customers are {names}"
        raise CommandError(msg)
    customers = {
        customer: {
            "emitted": len(before.get(customer, CustomerOutcome()).waits_s),
            "mean_wait_s": round(before.get(customer, CustomerOutcome()).mean_wait_s, 6),
            "other_mean_wait_s": round(after.get(customer, CustomerOutcome()).mean_wait_s, 6),
        }
        for customer in known
    }
    rows = Table("customer", "emitted", "mean wait", "mean wait with other weights")
    for customer, row in customers.items():
        emitted, was_s, other_s = row.values()
        rows.add_row(customer, str(emitted), f"{was_s:.3f} s", f"{other_s:.3f} s")
    shown.print(rows)
    return {"weights": dict(weights), "customers": customers}
