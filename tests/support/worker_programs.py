"""Workers in other languages, built from their sources in `workers/`.

Run as a program, it prints which tests are to be left out because a language is missing here.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path

WORKERS = Path(__file__).parents[2] / "workers"
NEEDED = {
    "tests/integrations/test_worker_in_go.py": ("go", "gcc"),
    "tests/integrations/test_worker_in_typescript.py": ("node", "npm"),
}


async def run(*command, folder):
    """Its standard output; all that it wrote is in the error if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    written, errors = await process.communicate()
    shown = f"{' '.join(command)}:\n{written.decode()}\n{errors.decode()}"
    assert process.returncode == 0, shown
    return written.decode()


def main():
    """Print pytest's arguments; 1 if all languages have to be here and one is not."""
    is_ci = os.environ.get("CI", "").lower() in {"1", "true"}
    for suite, programs in NEEDED.items():
        lacking = [one for one in programs if shutil.which(one) is None]
        if lacking:
            consequence = "CI runs all tests" if is_ci else f"{suite} IS LEFT OUT"
            sys.stderr.write(f"\n*** {consequence}: missing {', '.join(lacking)} ***\n")
            if is_ci:
                return 1
            sys.stdout.write(f"--ignore={suite}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
