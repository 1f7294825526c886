"""`pop-stream lab walk` on real servers."""

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.timeout(180)
def test_one_submission_passes_every_part():
    command = [sys.executable, "-m", "pop_stream", "lab", "walk", "--json"]
    options = ["--runs", "1", "--idle-seconds", "3", "--warm-up", "2"]
    own = {"POP_KAFKA_BOOTSTRAP", "POP_POSTGRES_DSN"}
    done = subprocess.run(  # noqa: S603
        [*command, *options],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name not in own},
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    assert [*figures] == ["files", "functions", "changes"]
    assert 10 < figures["files"] < figures["functions"] < figures["changes"] < 5_000
    parts = [line for line in done.stderr.splitlines() if line.endswith(" calls")]
    assert len(parts) == 5
