"""Places where a process may be made to end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pop_stream import crash_points
from pop_stream.crash_points import CrashPoint, crash_point_from

PART = """
from pop_stream import crash_points
for number in range(5):
    print(number, flush=True)
    crash_points.crash_point("rollup.folded")
    crash_points.crash_point("scheduler.recorded")
"""


def run(**variables):
    return subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", PART],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_unset_nothing_ends():
    assert run().stdout.split() == ["0", "1", "2", "3", "4"]


def test_the_process_is_killed_at_the_pass_asked_for_and_at_that_place_only(tmp_path):
    spent = tmp_path / "spent"
    variables = {"POP_CRASH_POINT": "scheduler.recorded:3", "POP_CRASH_POINT_FILE": str(spent)}
    ended = run(**variables)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == ["0", "1", "2"]
    assert spent.read_text().startswith("scheduler.recorded ")
    again = run(**variables)
    assert again.returncode == 0
    assert again.stdout.split() == ["0", "1", "2", "3", "4"]


def test_without_a_file_it_happens_again():
    died = []
    fault = CrashPoint("puller.ran", 2, None, terminate=lambda: died.append(1))
    for _ in range(4):
        fault.hit()
    assert died == [1]
    assert not fault.has_fired


def test_a_place_alone_means_its_first_pass():
    fault = crash_point_from({"POP_CRASH_POINT": "puller.ran"})
    assert fault is not None
    assert (fault.place, fault._left) == ("puller.ran", 1)


@pytest.mark.parametrize(
    "asked", ["puller.runs", "puller.ran:0", "puller.ran:x", "puller.ran:-1"]
)
def test_a_wrong_fault_is_refused_by_name(asked):
    with pytest.raises(ValueError, match="POP_CRASH_POINT = ") as refused:
        crash_point_from({"POP_CRASH_POINT": asked})
    assert asked in str(refused.value)


@pytest.mark.parametrize(
    ("bootstrap", "is_fine"),
    [("127.0.0.1:9092,localhost:9093", True), ("127.0.0.1:9092,kafka-1:9092", False)],
)
def test_a_cluster_elsewhere_gets_no_faults(monkeypatch, bootstrap, is_fine):
    monkeypatch.setenv("POP_CRASH_POINT", "rollup.folded")
    monkeypatch.setattr(crash_points, "_crash_point", CrashPoint("rollup.folded", 1, None))
    if is_fine:
        crash_points.require_local_brokers(bootstrap)
    else:
        with pytest.raises(ValueError, match="kafka-1:9092"):
            crash_points.require_local_brokers(bootstrap)


def test_every_place_is_passed_somewhere():
    package = Path(crash_points.__file__).parent
    code = "".join(path.read_text() for path in package.rglob("*.py"))
    missing = [one for one in crash_points.CRASH_POINTS if f'crash_point("{one}")' not in code]
    assert not missing
