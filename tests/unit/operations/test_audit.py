"""What an audit of the lock file comes to; and that it is asked for what is built with."""

import re
import tomllib
from pathlib import Path

import pytest
from audit import verdict

ROOT = Path(__file__).parents[3]
SOUND = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found on PyPI"}
BAD = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}


@pytest.mark.parametrize(
    ("packages", "says", "codes"),
    [
        ([SOUND], "1 packages have no known", (0, 0)),
        ([SOUND, BAD], "VULNERABLE: c 2: CVE-1, fixed in 3", (1, 1)),
        ([SOUND, SKIPPED], "NOT AUDITED: 1 of 2 packages", (0, 1)),
        ([SKIPPED, BAD], "VULNERABLE", (1, 1)),
        ([], "NOT AUDITED: any package", (0, 1)),
    ],
)
def test_what_could_not_be_looked_up_is_no_success(packages, says, codes):
    found = [verdict(packages, strict=strict) for strict in (False, True)]
    assert tuple(code for _, code in found) == codes
    assert says in "\n".join(found[0][0])


def test_the_build_back_end_is_the_one_in_the_lock_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [back_end] = project["build-system"]["requires"]
    assert re.fullmatch(r"hatchling==[\d.]+", back_end)
    assert back_end in project["dependency-groups"]["dev"]
    assert f"\n{back_end} \\\n" in (ROOT / "requirements.lock").read_text()
