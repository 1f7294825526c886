"""Fills a database with agendas that have ended, and asks for the console's pages over it."""

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import Stack, failing_with
from pop_stream.lab.bench.console import PAGES
from pop_stream.lab.bench.figures import percentiles_ms
from pop_stream.operations.errors import CommandError
from pop_stream.postgres.pool import load_queries, open_pool

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool

_SQL: Final = load_queries("bench")
_DEFINITIONS: Final = '[insights.bench]\nmappers = { operation_types = ["noop"] }\n'
_CHUNK: Final = 100_000
_LETTER_SHARE: Final = 100


async def time_pages(
    folder: Path, on_progress: Callable[[str], None], *, agendas: int, rounds: int
) -> Mapping[str, Any]:
    """Start everything but pullers, fill the database, and time the pages.

    Raises:
        CommandError: If a page is not answered with 200.
    """
    definitions = _definitions(folder)
    # Reconciliation would look for what Kafka never had.
    plan = StackPlan(
        folder=folder,
        definitions=definitions,
        pullers=0,
        overrides={"reconcile_every": "0", "console": True},
    )
    async with Stack(plan, on_progress) as stack, failing_with(stack):
        began = time.perf_counter()
        async with open_pool(stack.settings) as pool:
            await _fill(pool, agendas, on_progress)
        seed_s = time.perf_counter() - began
        on_progress(f"{agendas:,} agendas are written; asking for {len(PAGES)} pages")
        base = stack.settings.console_url.rstrip("/")
        async with aiohttp.ClientSession() as session:
            pages = {
                name: await _time(session, f"{base}{path}", rounds)
                for name, path in PAGES.items()
            }
    return {"pages": pages, "seed_s": round(seed_s, 1)}


def _definitions(folder: Path) -> Path:
    """The file that defines what is measured."""
    file = folder / "console-bench.toml"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(_DEFINITIONS)
    return file


async def _fill(pool: "Pool", agendas: int, on_progress: Callable[[str], None]) -> None:
    async with pool.acquire() as connection:
        for start in range(0, agendas, _CHUNK):
            end = min(agendas, start + _CHUNK) - 1
            await connection.execute(_SQL["seed_agendas"], start, end, agendas)
            if start and start % (10 * _CHUNK) == 0:
                on_progress(f"{start:,} of {agendas:,} agendas are written")
        for start in range(0, agendas // _LETTER_SHARE, _CHUNK):
            end = min(agendas // _LETTER_SHARE, start + _CHUNK) - 1
            await connection.execute(_SQL["seed_letters"], start, end)
            await connection.execute(_SQL["seed_audit_log"], start, end)
        await connection.execute(_SQL["seed_pullers"])
        # Autovacuum would have done it by the time that anybody looks.
        await connection.execute(_SQL["analyze"], timeout=600)


async def _time(session: aiohttp.ClientSession, url: str, rounds: int) -> Mapping[str, Any]:
    taken: list[float] = []
    size = 0
    for number in range(rounds + 1):
        began = time.perf_counter()
        async with session.get(url) as response:
            body = await response.read()
        if response.status != HTTPStatus.OK:
            msg = f"{url} answers {response.status}"
            raise CommandError(msg)
        size = len(body)
        if number:  # the first one opens connections
            taken.append(time.perf_counter() - began)
    found = percentiles_ms(taken)
    return {**found, "bytes": size}
