"""What an operator runs now and then: `migrate`, `topics` and `doctor`."""

import asyncio
from typing import Annotated, Final

import typer

from pop_stream.cli.output import JsonFlag, console, emit


def migrate(as_json: JsonFlag = False) -> None:
    """Bring Postgres and Kafka up to date: tables, topics, definitions; safe to repeat."""
    from pop_stream.operations import logging, provisioning

    settings = logging.configure_console_logging()
    done = asyncio.run(provisioning.migrate(settings))
    if as_json:
        emit({"done": done})
        return
    for one in done:
        typer.echo(f"done: {one}")
    if not done:
        typer.echo("nothing to do")


def topics(
    check: Annotated[
        bool, typer.Option("--check", help="Create nothing, only tell what is wrong.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Create the topics that are missing, and tell what is wrong with those that exist."""
    from pop_stream.operations import logging, provisioning

    settings = logging.configure_console_logging()
    created = [] if check else asyncio.run(provisioning.ensure_topics(settings))
    faults = asyncio.run(provisioning.topic_errors(settings))
    if as_json:
        emit({"created": created, "faults": faults})
    else:
        for name in created:
            typer.echo(f"created: {name}")
        _show_findings(faults, "topics are as the catalog has them")
    if faults:
        raise typer.Exit(1)


def doctor(
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Compare what was accepted with what goes on.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="With --ledger: place again what is missing.")
    ] = False,
    quiet: Annotated[
        float, typer.Option(min=0, help="With --ledger: pass over what changed so lately, s.")
    ] = 60.0,
    as_json: JsonFlag = False,
) -> None:
    """Check everything that can be misconfigured: broker, topics, Postgres, definitions."""
    from pop_stream.cli.ledger import check_ledger
    from pop_stream.operations import logging
    from pop_stream.operations.doctor import doctor as diagnose
    from pop_stream.operations.errors import UsageError

    if repair and not ledger:
        msg = "--repair says what to do about what --ledger finds; give both"
        raise UsageError(msg)
    settings = logging.configure_console_logging()
    if ledger:
        check_ledger(settings, quiet_s=quiet, repair=repair, as_json=as_json)
        return
    findings = [str(one) for one in asyncio.run(diagnose(settings))]
    if as_json:
        emit({"findings": findings})
    else:
        _show_findings(findings, "all is well")
    if findings:
        raise typer.Exit(1)


def remove_expired(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing, only count.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove agendas that ended long enough ago, as POP_RETAIN_… say; the rollup does, too.

    Nothing that waits or runs is ever removed, whatever its age.
    """
    from pop_stream.composition.rollup import run_retention_once
    from pop_stream.operations import logging

    settings = logging.configure_console_logging()
    removed = asyncio.run(run_retention_once(settings, dry_run=dry_run))
    if as_json:
        emit({"removed": removed, "dry_run": dry_run})
        return
    for kind, count in removed.items():
        typer.echo(f"{'would remove' if dry_run else 'removed'}: {count:,} {kind}")


def webhook_secret(
    customer: Annotated[str, typer.Argument(help="Whose.")], as_json: JsonFlag = False
) -> None:
    """Show the secret with which a customer checks callbacks; made from POP_WEBHOOK_KEYS."""
    from pop_stream.operations.environment import load_settings
    from pop_stream.operations.errors import UsageError
    from pop_stream.policy.lifecycle.webhooks import webhook_secret as secret_of

    keys = load_settings().webhook_keys
    if not keys:
        msg = "POP_WEBHOOK_KEYS is not set, so no callback is sent; set it to a JSON list"
        raise UsageError(msg)
    secrets = [secret_of(customer, key.get_secret_value().encode()) for key in keys]
    if as_json:
        emit({"customer_id": customer, "secrets": secrets})
        return
    for one in secrets:
        typer.echo(one)


COMMANDS: Final = (migrate, topics, doctor, remove_expired, webhook_secret)


def _show_findings(findings: list[str], otherwise: str) -> None:
    for one in findings:
        console().print(f"[red]✗[/] {one}", markup=True)
    if not findings:
        console().print(f"[green]✓[/] {otherwise}")
