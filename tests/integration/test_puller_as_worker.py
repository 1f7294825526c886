"""The puller in Python, held to the contract of workers."""

import sys
from pathlib import Path

import pytest
from worker_contract import FIXTURES, TESTS

globals().update(TESTS | FIXTURES)

PROGRAM = Path(__file__).parents[1] / "support" / "contract_worker.py"


@pytest.fixture(scope="module")
def program():
    return (sys.executable, str(PROGRAM))
