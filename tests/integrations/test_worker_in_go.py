"""The worker in Go, held to the contract of workers."""

import pytest
import pytest_asyncio
from printed_page import PrintedPage
from worker_contract import FIXTURES, HTTP_TESTS
from worker_programs import WORKERS, run
from worker_world import prints_a_letter

globals().update(HTTP_TESTS | FIXTURES)

pytestmark = pytest.mark.timeout(600)

MODULE = WORKERS / "go"


@pytest_asyncio.fixture(scope="module")
async def program(tmp_path_factory):
    built = tmp_path_factory.mktemp("go") / "worker"
    await run("go", "build", "-race", "-o", str(built), "./internal/contract", folder=MODULE)
    return (str(built),)


async def test_what_is_generated_is_current(tmp_path):
    copy = tmp_path / "api.gen.go"
    document = WORKERS.parent / "docs" / "reference" / "workers-openapi.json"
    generator = ("go", "tool", "-modfile=generator.mod", "oapi-codegen")
    options = ("-config", "api/config.yaml", "-o", str(copy), str(document))
    await run(*generator, *options, folder=MODULE)
    assert copy.read_text() == (MODULE / "api" / "api.gen.go").read_text()


async def test_it_is_formatted_and_vetted():
    assert await run("gofmt", "-l", ".", folder=MODULE) == ""
    await run("go", "vet", "./...", folder=MODULE)


async def test_the_page_works_as_printed(world):
    page = PrintedPage("how-to/workers-in-other-languages.md", world.folder)
    page.write("main.go", "// main.go", "go")
    await prints_a_letter(world, page, "go build", WORKERS.parent)
