"""What `pop-stream doctor --ledger` says."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import typer

from pop_stream.cli.output import console, emit
from pop_stream.composition.reconciler import audit_ledger
from pop_stream.reconciler.reconciler import LedgerAudit
from pop_stream.settings import Settings

_SHOWN: Final = 20
_LISTED: Final = 1_000
_REPAIRABLE: Final = frozenset({"missing", "no_summary", "summary", "ended"})


def check_ledger(settings: Settings, *, quiet_s: float, repair: bool, as_json: bool) -> None:
    """Audit, show what was found, and exit with 1 if something is left to do.

    Raises:
        UnavailableError: If Postgres or Kafka is away, or the rollup does not keep up.
    """
    quiet = timedelta(seconds=quiet_s)
    audit = asyncio.run(audit_ledger(settings, quiet=quiet, repair=repair))
    shown = console(as_json=as_json)
    for line in lines(audit, repair=repair):
        shown.print(line, soft_wrap=True)
    if as_json:
        emit(report(audit))
    if not audit.is_clean:
        raise typer.Exit(1)


def report(audit: LedgerAudit) -> Mapping[str, Any]:
    """The audit as JSON; at most a thousand faults are listed, all are counted."""
    return {
        "checked": audit.checked,
        "skipped": audit.skipped,
        "events_behind": audit.behind,
        "faults": dict(Counter(one.kind for one in audit.discrepancies)),
        "agendas": [
            {
                "agenda_id": one.row.agenda_id,
                "insight_id": one.row.insight_id,
                "fault": one.kind,
                "detail": one.detail,
            }
            for one in audit.discrepancies[:_LISTED]
        ],
        "offsets": audit.offsets,
        "unanswered": audit.unanswered,
        "repaired": audit.repaired,
        "unrepairable": audit.unrepairable,
        "clean": audit.is_clean,
    }


def lines(audit: LedgerAudit, *, repair: bool) -> Iterator[str]:
    """The audit for a person."""
    yield (
        f"looked at {audit.checked:,} agendas, twice at what seemed wrong; passed over "
        f"{audit.skipped:,} that had just changed"
    )
    yield from (f"[red]✗[/] {fault}" for fault in audit.offsets)
    yield from (
        f"[red]✗[/] {insight_id}: {why}" for insight_id, why in audit.unanswered.items()
    )
    for one in audit.discrepancies[:_SHOWN]:
        mark = "[yellow]↻[/]" if one.row.agenda_id in audit.repaired else "[red]✗[/]"
        yield f"{mark} {one.row.agenda_id} of {one.row.insight_id}: {one.detail}"
    if len(audit.discrepancies) > _SHOWN:
        yield f"… and {len(audit.discrepancies) - _SHOWN:,} more, listed by --json"
    yield from (
        f"[red]✗[/] {agenda_id} cannot be repaired: {why}"
        for agenda_id, why in audit.unrepairable.items()
    )
    if audit.repaired:
        yield f"[green]✓[/] repaired {len({*audit.repaired}):,}"
    elif any(one.kind in _REPAIRABLE for one in audit.discrepancies) and not repair:
        yield "repair it with: pop-stream doctor --ledger --repair"
    if not audit.checked and audit.skipped:
        yield "nothing was looked at yet: look again in a minute, or with a shorter --quiet"
    elif audit.is_clean and not audit.discrepancies:
        yield "[green]✓[/] Postgres, Kafka and the scheduler agree"
