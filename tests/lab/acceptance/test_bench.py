"""The benchmarks as a stranger runs them: what they count and report, never how fast."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from report_commands import PATIENCE_S, bench, servers_of

from pop_stream.settings import Settings

PARTS = {"ingest", "scheduler", "rollup", "api", "puller-1", "bench"}


@pytest.fixture
def servers(settings: Settings) -> Mapping[str, str]:
    """Those of all tests, with a database of this one's own."""
    return servers_of(settings)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own, which PostgreSQL, as another user, could not enter."""
    with tempfile.TemporaryDirectory(prefix="pop-stream-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.mark.timeout(PATIENCE_S + 30)
async def test_pipeline_loses_nothing_and_reports_path_floor_and_costs(folder):
    svg = folder / "runs.svg"
    report = await bench(
        "pipeline", "--agendas", "300", "--runs", "2", "--customers", "7", "--operations", "2",
        "--insights", "2", "--schedulers", "2", "--folder", str(folder / "data"),
        "--svg", str(svg),
        servers={},
    )  # fmt: skip
    assert (report["lost"], report["duplicates"], report["failed_attempts"]) == (0, 0, 0)
    assert report["agendas_per_s"] > 0
    assert report["ratio"] == pytest.approx(
        report["agendas_per_s"] / report["floor_per_s"], rel=1e-2
    )
    assert [one["agendas"] for one in report["runs"] + report["floors"]] == [300] * 4
    assert set(report["parts"]) == PARTS | {"kafka", "postgres", "scheduler-2"}
    assert all(one["cpu_s_per_1k"] >= 0 for one in report["parts"].values())
    assert {f"floor-{number}" for number in range(1, 5)} < set(report["floor_parts"])
    assert report["peak_rss_mb"] > 100
    assert report["cpu_s_per_1k"] > 0
    spread = report["agendas_per_s_of_runs"]
    assert spread["min"] <= report["agendas_per_s"] <= spread["max"]
    conditions = report["conditions"]
    assert conditions["loop"].startswith("burst: 300 agendas")
    assert {"cores", "commit", "load_before", "packages"} <= set(conditions)
    assert svg.read_text().count('<path class="line"') == 4


@pytest.mark.timeout(PATIENCE_S + 30)
async def test_latency_follows_every_agenda_from_when_it_was_due(servers):
    report = await bench(
        "latency", "--rate", "20", "--seconds", "3", "--warm-up", "2", "--via", "http",
        servers=servers,
    )  # fmt: skip
    assert (report["agendas"], report["lost"]) == (60, 0)
    for name in ("submit_to_start_ms", "submit_to_summary_ms"):
        assert 0 < report[name]["p50"] <= report[name]["p95"] <= report[name]["p99"]
    assert report["submit_to_start_ms"]["p99"] < 10_000  # nothing waits for a timer
    assert report["submit_to_start_ms"]["p50"] < report["submit_to_summary_ms"]["p50"]
    assert all(one["p50"] is not None for one in report["stages_ms"].values())
    assert set(report["core_share"]) == PARTS
    assert report["core_share_besides"]["others"] >= 0


@pytest.mark.timeout(PATIENCE_S + 30)
async def test_backlog_is_picked_from_killed_and_recovered(servers):
    report = await bench(
        "backlog", "--ready", "2000", "--customers", "20", "--insights", "2", "--picks", "20",
        servers=servers,
    )  # fmt: skip
    assert (report["ready"], report["picks"], report["target"]) == (2_000, 20, 200)
    assert report["round_agendas"] >= 10_000
    assert all(report[name] > 0 for name in ("pick_us", "rss_mb", "recovery_s", "round_us"))


@pytest.mark.timeout(PATIENCE_S + 30)
async def test_schedules_rest_and_all_that_are_due_fire_once(servers):
    report = await bench(
        "schedules", "--schedules", "60", "--due", "20", "--rest-s", "1", servers=servers
    )
    assert (report["fired"], report["fired_twice"]) == (20, 0)
    assert 0 <= report["late_ms"]["p50"] <= report["late_ms"]["p99"]
    assert set(report["parts"]) == PARTS - {"bench"}
    assert all(one["rss_mb"] > 0 for one in report["parts"].values())
