"""Audits what the lock file of all extras names for known vulnerabilities: `make audit`.

Exits with 1 if one is known. What could not be looked up, as without a network, is said loudly
and is no success; with `--strict` it is a failure.
"""

import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parents[2] / "requirements-integrations.lock"
COMMAND = (
    *(str(Path(sys.executable).with_name("pip-audit")), "--disable-pip", "--require-hashes"),
    *("--requirement", str(LOCK), "--format", "json", "--progress-spinner", "off"),
)


def verdict(packages, *, strict):
    """What to say of a report's packages, in lines, and the exit code."""
    lines = [
        f"VULNERABLE: {one['name']} {one['version']}: {known['id']}, fixed in "
        f"{', '.join(known['fix_versions']) or 'no version'}"
        for one in packages
        for known in one.get("vulns", ())
    ]
    skipped = [one["name"] for one in packages if "skip_reason" in one]
    if skipped or not packages:
        what = f"{len(skipped)} of {len(packages)} packages" if packages else "any package"
        lines += ["!" * 72, f"NOT AUDITED: {what} could not be looked up on pypi.org;"]
        lines += ["run `make audit` again where it can be reached", "!" * 72]
    if not lines:
        lines = [f"{len(packages)} packages have no known vulnerability"]
    is_bad = any(one.get("vulns") for one in packages)
    return lines, int(is_bad or (strict and bool(skipped or not packages)))


def main():
    done = subprocess.run(COMMAND, check=False, capture_output=True, text=True)  # noqa: S603  ours
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        sys.stderr.write(done.stderr[-2_000:])
        packages = []
    lines, code = verdict(packages, strict="--strict" in sys.argv[1:])
    sys.stderr.write("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
