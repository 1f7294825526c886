"""The documentation: that what it links to, names and shows exists."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from pop_stream.__main__ import app
from pop_stream.cli.generate import schemas
from pop_stream.model.agenda import Agenda
from pop_stream.model.definitions import Customer, Insight, ResourcePool
from pop_stream.model.schedule import Schedule
from pop_stream.settings import Settings

ROOT = Path(__file__).parents[3]
ARCHIVE = ROOT / "docs" / "decisions" / "archive"
"""Superseded decisions, as they were written: they name what was there then."""

PAGES = sorted(
    page
    for page in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    if page.parent != ARCHIVE or page.name == "README.md"
)
REFERENCE = ROOT / "docs" / "reference"
PACKAGE = ROOT / "pop_stream"


def pages():
    return pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def links(page):
    """Text and target of every link, code left out."""
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", prose)
    return [(text, target) for text, target in found if "://" not in target]


def anchors(page):
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.replace(" ", "-") for title in kept}


@pages()
def test_links_lead_somewhere(page):
    for _, target in links(page):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), target


@pages()
def test_tests_that_are_named_exist(page):
    for text, target in links(page):
        if name := re.fullmatch(r"`(test_\w+)`", text):
            assert f"def {name[1]}(" in (page.parent / target).read_text(), name[1]
    known = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", page.read_text()):
        assert f"def {name}(" in known, name


@pages()
def test_settings_that_are_named_exist(page):
    known = {f"POP_{name.upper()}" for name in Settings.model_fields}
    known |= {"POP_TEST_BOOTSTRAP", "POP_TEST_DSN"}
    assert set(re.findall(r"POP_[A-Z][A-Z_]*[A-Z]", page.read_text())) <= known


@pages()
def test_commands_that_are_named_exist(page):
    known = get_command(app).commands.keys()
    named = re.findall(r"pop-stream ([a-z][a-z-]*)\b(?! started)", page.read_text())
    assert set(named) <= known


@pages()
def test_files_of_the_package_that_are_named_exist(page):
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*/(?:[a-z_]+\.py)?)", page.read_text()):
        if name.partition("/")[0] in rooms:
            assert (PACKAGE / name).exists(), name


def test_every_current_decision_is_in_the_index():
    index = ROOT / "docs" / "decisions" / "README.md"
    linked = {target for _, target in links(index) if re.match(r"\d{4}-", target)}
    assert linked == {path.name for path in index.parent.glob("[0-9]*.md")}


def test_every_decision_has_a_number_of_its_own():
    index = ROOT / "docs" / "decisions" / "README.md"
    records = sorted(index.parent.glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in records]
    assert numbers == sorted(set(numbers))
    linked = re.findall(r"^- \[(\d+)\. .+\]\((\d{4})-.+\)$", index.read_text(), re.MULTILINE)
    assert sorted(int(file) for _, file in linked) == numbers
    assert [number for number, file in linked if int(number) != int(file)] == []
    for number, path in zip(numbers, records, strict=True):
        assert path.read_text().startswith(f"# {number}. "), path.name


def test_every_archived_decision_names_what_superseded_it():
    rows = re.findall(
        r"^\| (\d+) \| \[.+\]\((\d{4})-.+\.md\) \| .*\]\(\.\./\d{4}-.+\) \|$",
        (ARCHIVE / "README.md").read_text(),
        re.MULTILINE,
    )
    assert all(int(number) == int(file) for number, file in rows)
    assert {file for _, file in rows} == {path.name[:4] for path in ARCHIVE.glob("[0-9]*.md")}


def commands(group, prefix=""):
    """Every command that can be run, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


@pytest.mark.parametrize(("name", "command"), [*commands(get_command(app))])
def test_the_reference_has_every_command_with_its_options(name, command):
    page = (REFERENCE / "cli.md").read_text()
    section = re.search(rf"^### `pop-stream {name}\b.*?(?=^##)", page, re.DOTALL | re.MULTILINE)
    assert section, f"docs/reference/cli.md has no section for pop-stream {name}"
    documented = set(re.findall(r"`(--[a-z-]+)", section[0]))
    options = {word for one in command.params for word in one.opts if word.startswith("--")}
    assert documented == options - {"--help"}


@pytest.mark.parametrize(
    "page",
    [
        "how-to/coming-from-kat.md",
        "how-to/coming-from-lens.md",
        "how-to/coming-from-pop.md",
        "how-to/coming-from-sosw.md",
        "reference/guarantees.md",
        "explanation/faults-of-others.md",
    ],
)
def test_the_tests_that_a_page_names_are_there(page):
    text = (ROOT / "docs" / page).read_text()
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./\.\./(tests/\S+?\.py)\)", text)
    assert named
    missing = [
        f"{path}: {name}"
        for name, path in named
        if not re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_every_fault_of_others_has_its_test():
    text = (ROOT / "docs" / "explanation" / "faults-of-others.md").read_text()
    lines = [
        one for one in text.splitlines() if one.startswith("| ") and "fault | here" not in one
    ]
    assert len(lines) >= 30
    assert [one for one in lines if "](../../tests/" not in one] == []


def test_every_feature_of_pop_has_its_line_and_a_test():
    text = (ROOT / "docs" / "how-to" / "coming-from-pop.md").read_text()
    lines = re.findall(r"^\| (\d+) \| .+ \| .+ \| (.+) \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in lines] == [*range(1, 98)]
    assert [number for number, shown_by in lines if "](../../tests/" not in shown_by] == []


@pytest.mark.parametrize(
    ("page", "numbers"),
    [("coming-from-kat.md", range(1, 28)), ("coming-from-lens.md", range(50, 74))],
)
def test_every_feature_has_its_line_and_a_test_or_is_called_missing(page, numbers):
    text = (ROOT / "docs" / "how-to" / page).read_text()
    lines = re.findall(r"^\| (\d+) \| .+ \| .+ \| (.+) \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in lines] == [*numbers]
    shown = [one for _, one in lines if "](../../tests/" in one or one == "**missing**"]
    assert shown == [one for _, one in lines]


@pytest.mark.parametrize(
    ("page", "model"), [("coming-from-kat.md", Agenda), ("coming-from-lens.md", Schedule)]
)
def test_what_takes_the_place_of_others_work_is_sound(page, model):
    text = (ROOT / "docs" / "how-to" / page).read_text()
    example = re.findall(r"^```json\n(.+?)^```", text, re.DOTALL | re.MULTILINE)[-1]
    model.model_validate_json(example)


def test_every_guide_is_listed_once():
    guides = [path.name for path in sorted((ROOT / "docs" / "how-to").glob("*.md"))]
    listed = [target for _, target in links(ROOT / "docs" / "README.md")]
    assert sorted(one for one in listed if one.startswith("how-to/")) == [
        f"how-to/{name}" for name in guides
    ]


def test_the_reference_has_every_event():
    text = (REFERENCE / "events.md").read_text()
    of_events = (one for name, one in schemas().items() if name != "definitions.json")
    for schema in of_events:
        for shape in schema["$defs"].values():
            for kind in shape.get("properties", {}).get("type", {}).get("enum", ()):
                assert f"`{kind}`" in text, kind


def test_the_guide_names_only_fields_that_definitions_have():
    text = (ROOT / "docs" / "how-to" / "definitions.md").read_text()
    models = {"customer": Customer, "insight": Insight, "pool": ResourcePool}
    for kind, names in re.findall(
        r"^\| (customer|insight|pool) \| (.+?) \|", text, re.MULTILINE
    ):
        assert set(re.findall(r"`(\w+)`", names)) <= models[kind].model_fields.keys()


@pytest.mark.parametrize(
    ("page", "numbers"),
    [
        ("coming-from-sosw.md", range(28, 50)),
        ("coming-from-lens.md", range(50, 74)),
    ],
)
def test_every_feature_of_another_scheduler_names_a_test(page, numbers):
    text = (ROOT / "docs" / "how-to" / page).read_text()
    rows = {int(row[0]): row[1] for row in re.findall(r"^\| (\d+) \|(.*)$", text, re.MULTILINE)}
    assert [*rows] == [*numbers]
    assert [number for number, row in rows.items() if "[`test_" not in row] == []


OTHERS = {"kat": range(1, 28), "sosw": range(28, 50), "lens": range(50, 74)}
"""By scheduler, the numbers of what it does, in the checklist of its page."""


@pytest.mark.parametrize("other", OTHERS)
def test_each_line_of_another_scheduler_names_the_tests_that_show_it(other):
    text = (ROOT / "docs" / "how-to" / f"coming-from-{other}.md").read_text()
    shown: dict[int, int] = {}
    for row in re.findall(r"^\| (?=\d).*\|$", text, re.MULTILINE):
        numbers, *_, last = (one.strip() for one in row.strip("|").split(" | "))
        named = len(re.findall(r"\[`test_\w+`\]", last))
        first, _, end = numbers.replace("\u2013", "-").partition("-")
        for one in range(int(first), int(end or first) + 1):
            shown[one] = shown.get(one, 0) + named
    assert sorted(shown) == [*OTHERS[other]]
    assert [number for number, tests in shown.items() if not tests] == []
