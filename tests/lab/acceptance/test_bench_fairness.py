"""Scenarios on the real stack: who got what, and nothing lost; never how fast."""

import json
from xml.etree import ElementTree as ET

import pytest
from report_commands import PATIENCE_S, bench, servers_of

KEYS = {
    "jain", "jain_floor", "jain_customers", "jain_even", "reweight_within",
    "worst_gap_over_bound", "worst_gap", "quiet_p99_over_alone",
    "makespan_over_fifo", "throughput_over_fifo", "quiet_wait_mean_s", "runs", "stages",
    "waits",
    "lost", "failed", "duplicates", "conditions", "scenario",
}  # fmt: skip


def judge(report, scenario):
    assert set(report) >= KEYS
    assert report["scenario"] == scenario
    assert (report["lost"], report["failed"], report["unfinished"]) == (0, 0, 0)
    assert report["agendas"] + report["unrecorded"] == report["conditions"]["agendas"]
    assert sum(one["count"] for one in report["waits"].values()) == report["agendas"]
    assert 0 <= report["worst_gap_over_bound"] <= 1
    assert (report["jain"] is None) == (report["jain_customers"] == 0)
    for phase in ("fair", "fifo", "alone"):
        parts = report["stages"][phase].values()
        assert all(one["mean_s"] >= 0 for one in parts), json.dumps(report["stages"])


@pytest.mark.timeout(PATIENCE_S + 30)
async def test_a_flood_and_four_others_keep_the_bound_on_the_real_stack(settings, tmp_path):
    svg = tmp_path / "skew.svg"
    report = await bench(
        "fairness", "--scenario", "skew", "--scale", "0.1", "--runs", "1", "--svg", str(svg),
        servers=servers_of(settings),
    )  # fmt: skip
    judge(report, "skew")
    assert (report["duplicates"], report["unrecorded"]) == (0, 0)
    assert set(report["waits"]) == {"flood", "anna", "bruno", "carla", "dora"}
    assert "flood" in " ".join(ET.fromstring(svg.read_text()).itertext())  # noqa: S314  # ours


@pytest.mark.timeout(PATIENCE_S + 30)
async def test_a_scheduler_that_moves_and_pullers_that_rebalance_lose_nothing(settings):
    report = await bench(
        "fairness",
        "--scenario",
        "rebalance",
        "--scale",
        "0.1",
        "--runs",
        "1",
        servers=servers_of(settings),
    )
    judge(report, "rebalance")
    # All three are backlogged from the start, so there is something to compare.
    assert report["worst_gap_over_bound"] > 0, "nothing was compared"
    assert report["jain_customers"] == 3
    assert report["jain"] >= 0.98  # 0.999 is for machines that do nothing else
    assert set(report["waits"]) == set("abc")


@pytest.mark.timeout(PATIENCE_S + 30)
async def test_a_new_weight_shows_within_one_depth_of_emissions_on_the_real_stack(settings):
    report = await bench(
        "fairness", "--scenario", "reweight", "--scale", "0.3", "--target", "16",
        "--runs", "1",
        servers=servers_of(settings),
    )  # fmt: skip
    judge(report, "reweight")
    assert report["reweight_within"] is not None, "nothing was left to do by the new weight"
    assert 0 < report["reweight_within"] <= 1
    # First come, first served changed it before: the new weight was not in force yet.
    assert [one[:2] for one in report["weighed"]] == [["b", 4.0]]
