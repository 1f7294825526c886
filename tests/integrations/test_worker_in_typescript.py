"""The worker in TypeScript, held to the contract of workers, on Node."""

import shutil

import pytest
import pytest_asyncio
from printed_page import PrintedPage
from worker_contract import FIXTURES, HTTP_TESTS
from worker_programs import WORKERS, run
from worker_world import prints_a_letter

globals().update(HTTP_TESTS | FIXTURES)

pytestmark = pytest.mark.timeout(600)

PACKAGE = WORKERS / "typescript"


@pytest_asyncio.fixture(scope="module")
async def package(tmp_path_factory):
    """A copy with its dependencies installed as locked, compiled."""
    copy = tmp_path_factory.mktemp("typescript") / "workers" / "typescript"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    await run("npm", "ci", "--no-audit", "--no-fund", folder=copy)  # compiles, too
    return copy


@pytest.fixture(scope="module")
def program(package):
    return ("node", str(package / "dist" / "contract.js"))


async def test_what_is_generated_is_current(package):
    document = WORKERS.parent / "docs" / "reference" / "workers-openapi.json"
    reference = package.parents[1] / "docs" / "reference"
    reference.mkdir(parents=True)
    shutil.copy(document, reference)
    await run("npm", "run", "generate", folder=package)
    generated = (package / "src" / "api.gen.ts").read_text()
    assert generated == (PACKAGE / "src" / "api.gen.ts").read_text()


async def test_the_page_works_as_printed(world, package):
    page = PrintedPage("how-to/workers-in-other-languages.md", world.folder)
    page.write("letters.ts", "// letters.ts", "typescript")
    await prints_a_letter(world, page, "npx tsc", package.parents[1])
