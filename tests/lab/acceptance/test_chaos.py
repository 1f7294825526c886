"""`pop-stream chaos` as an operator runs it: parts die and freeze, and nothing is lost."""

import pytest
from report_commands import PATIENCE_S, reported, servers_of

from pop_stream.lab.chaos.attacks import ATTACKS

KILLS, FREEZES = 3, 1
SECONDS, RATE = 10, 20
SCHEDULES = 2


@pytest.mark.timeout(PATIENCE_S + 30)
async def test_nothing_is_lost_or_started_twice_while_parts_die_and_freeze(settings, tmp_path):
    # How long a pause lasts is the machine's business here, so only what is counted is held.
    code, report, said = await reported(
        "chaos", "--folder", str(tmp_path),
        *("--seed", "2", "--kills", str(KILLS), "--freezes", str(FREEZES)),
        *("--seconds", str(SECONDS), "--rate", str(RATE), "--pullers", "1"),
        *("--schedules", str(SCHEDULES)),
        servers=servers_of(settings),
    )  # fmt: skip
    assert code in {0, 1}, said
    assert report["occurrences"] == SECONDS * SCHEDULES
    assert (report["occurrences_missing"], report["occurrences_run_again"]) == (0, 0), said
    expected = SECONDS * (RATE + SCHEDULES)
    assert report["accepted"] == report["terminal"] == expected, said
    assert (report["lost"], report["duplicate_starts"], report["disagreeing"]) == (0, 0, 0)
    assert (report["failed"], report["refused"]) == (0, 0)
    assert report["rounds_repeated"] <= KILLS + FREEZES
    assert report["starts"] >= report["accepted"]
    assert sum(report["faults"].values()) == KILLS + FREEZES
    broken = [one for one in report["broken"] if "nothing was started for" not in one]
    assert broken == []
    assert code == (1 if report["broken"] else 0)


@pytest.mark.timeout(PATIENCE_S + 30)
async def test_a_rolling_upgrade_that_is_rolled_back_loses_and_repeats_nothing(
    settings, tmp_path
):
    code, report, said = await reported(
        "chaos", "--rolling", "--folder", str(tmp_path),
        *("--seed", "5", "--pullers", "1", "--schedulers", "1"),
        *("--seconds", str(SECONDS), "--rate", str(RATE)),
        servers=servers_of(settings),
    )  # fmt: skip
    assert code in {0, 1}, said
    parts = {"rollup", "api", "scheduler", "ingest", "puller-1"}
    assert report["faults"] == {f"replace {one}": 2 for one in parts}, said
    assert report["replaced_s"].keys() == parts
    assert report["accepted"] == report["terminal"] >= SECONDS * RATE, said
    assert (report["lost"], report["most_attempts"]) == (0, 1)
    assert [one for one in report["broken"] if "nothing was started for" not in one] == []


@pytest.mark.timeout(PATIENCE_S + 60)
async def test_a_hostile_customer_costs_a_quiet_one_nothing_and_ends_no_part(
    settings, tmp_path
):
    # How long the quiet one waits is the machine's business here, too.
    code, report, said = await reported(
        "chaos", "--hostile", "--folder", str(tmp_path),
        *("--seed", "3", "--seconds", "40", "--rate", "5"),
        servers=servers_of(settings),
    )  # fmt: skip
    assert code in {0, 1}, said
    assert report["submitted"] == 40 * 5, said
    assert (report["lost"], report["refused"]) == (0, 0), said
    assert (report["restarts"], report["server_errors"]) == ({}, {}), said
    attacks = {one.rsplit(" ", 1)[0] for one in report["answers"]}
    assert attacks == {one.name for one in ATTACKS}
    assert [one for one in report["broken"] if "p99" not in one] == []
