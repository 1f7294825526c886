"""One fixed run leaves behind what the golden file says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden.json"


@pytest.mark.timeout(400)
def test_a_run_leaves_behind_what_is_on_record():
    compare = ["lab", "golden", "--compare", str(GOLDEN), "--json"]
    own = {"POP_KAFKA_BOOTSTRAP", "POP_POSTGRES_DSN"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pop_stream", *compare],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name not in own},
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["differences"] == 0
    assert figures["found"] > 500
