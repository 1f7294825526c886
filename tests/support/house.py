"""Measures how the source is laid out; `make house` prints it, `test_house.py` holds it.

Nothing is imported or run: every figure comes from the files' text and syntax trees.
"""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "pop_stream"

MIN_LINES: Final = 60
"""A shorter module with one importer, in its own folder, belongs into that importer."""

MAX_FUNCTION_LINES: Final = 40
"""Without decorators and docstring."""

MAX_MODULE_LINES: Final = 500

PRIVATE_ROOMS: Final = ("kafka/hardening/", "scheduler/faust/")
"""The only rooms that may reach into private members of other packages."""

# fmt: off
WORDS_OUT: Final = frozenset(
    {
        "abreast", "burial", "buried", "buries", "bury", "census", "dealing", "desk", "desks",
        "door", "doors", "doorway", "handout", "handouts", "hear", "heard", "hearing",
        "hears", "hearsay", "intake", "lookahead", "newcomer", "newcomers", "news", "rota",
        "salvage", "shelf", "shelves", "telling", "timetable", "told", "untold", "vigil",
        "whereabouts",
    }
)
# fmt: on
"""Words of no field: not in identifiers, comments, docstrings, messages or docs."""

# fmt: off
NAMES_OUT: Final = frozenset(
    {
        "Beat", "Blow", "BusyPeriod", "Claimant", "CostBook", "Drain", "Hand", "HeardClock",
        "Hold", "Judge", "KeyBook", "KeySet", "Keeping", "Line", "Mark", "Outgoing", "Pace",
        "Resumption", "Rounds", "SlotNote", "Sorted", "Sorter", "SteadyPublisher", "Steering",
        "Stock", "Stops", "Tail", "Turns", "UnderWay", "Witness", "WorkDesk", "attendance",
        "head_start", "hurry", "is_sure_of", "keep_up", "make_good", "on_topic", "pass_over",
        "reaper", "regularly", "take_told", "told_of", "under_way", "upkeep",
    }
)
# fmt: on
"""Identifiers that have a better name; as words of a sentence they may stand."""

_DOCS: Final = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
_DOCS_LEFT_OUT: Final = ("docs/decisions/archive/",)
_PIECES: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Function(NamedTuple):
    """A function that is too long."""

    lines: int
    path: str
    name: str


class Found(NamedTuple):
    """A word that is out, and where it stands."""

    path: str
    line: int
    word: str


def sources() -> Mapping[str, str]:
    """The text of every module of the package, by its path below `pop_stream/`."""
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def lines_by_room(modules: Mapping[str, str]) -> Mapping[str, tuple[int, int]]:
    """Files and lines of each folder right below the package; files there are a room each."""
    rooms: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for path, text in modules.items():
        room = path.partition("/")[0]
        files, lines = rooms[room]
        rooms[room] = (files + 1, lines + len(text.splitlines()))
    return dict(rooms)


def importers(modules: Mapping[str, str]) -> Mapping[str, set[str]]:
    """Which modules import each module, by path."""
    by_name = {_module_name(path): path for path in modules}
    found: dict[str, set[str]] = {path: set() for path in modules}
    for path, text in modules.items():
        for name in _imported(ast.parse(text)):
            if name in by_name and by_name[name] != path:
                found[by_name[name]].add(path)
    return found


def small_siblings(modules: Mapping[str, str]) -> Sequence[str]:
    """Modules below `MIN_LINES` whose only importer is in the same folder."""
    found = []
    for path, users in importers(modules).items():
        lines, file = len(modules[path].splitlines()), Path(path)
        if lines >= MIN_LINES or file.name.startswith("__") or len(users) != 1:
            continue
        if Path(next(iter(users))).parent == file.parent:
            found.append(path)
    return found


def long_functions(modules: Mapping[str, str]) -> Sequence[Function]:
    """Functions above `MAX_FUNCTION_LINES`, longest first."""
    found = [
        Function(_length(node), path, node.name)
        for path, text in modules.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _length(node) > MAX_FUNCTION_LINES
    ]
    return sorted(found, reverse=True)


def long_modules(modules: Mapping[str, str]) -> Sequence[tuple[str, int]]:
    """Modules above `MAX_MODULE_LINES`."""
    sizes = {path: len(text.splitlines()) for path, text in modules.items()}
    return [(path, lines) for path, lines in sizes.items() if lines > MAX_MODULE_LINES]


def scanned_dicts(modules: Mapping[str, str]) -> Sequence[tuple[str, int]]:
    """Lines that take a mapping's first key out by name: an `OrderedDict` has `popitem`.

    A plain dict looks for its first key among all that were deleted before it.
    """
    found = []
    for path, text in modules.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Delete):
                keys = [one.slice for one in node.targets if isinstance(one, ast.Subscript)]
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".pop"):
                keys = node.args
            else:
                continue
            if any(ast.unparse(one).startswith("next(iter(") for one in keys):
                found.append((path, node.lineno))
    return found


def private_reaches(modules: Mapping[str, str]) -> Sequence[tuple[str, int]]:
    """Lines outside `PRIVATE_ROOMS` that use a private member of something else.

    The linter forbids them, so each carries a suppression; `getattr` with a private name is
    the same in other words.
    """
    pattern = re.compile(r"noqa:[^#]*\bSLF001\b|[gs]etattr\([^,()]+, [\"']_[a-z]")
    return [
        (path, number)
        for path, text in modules.items()
        if not path.startswith(PRIVATE_ROOMS)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def repeated_classes(modules: Mapping[str, str]) -> Sequence[str]:
    """Class names that more than one class of the package has."""
    names = Counter(
        node.name
        for text in modules.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def words_out(texts: Mapping[str, str]) -> Sequence[Found]:
    """Words and identifiers of these texts that are out, line by line."""
    return [
        Found(path, number, word)
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        for word in _words_out(line)
    ] + [
        Found(path, token.start[0], token.string)
        for path, text in texts.items()
        if path.endswith(".py")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NAME and token.string in NAMES_OUT
    ]


def documents() -> Mapping[str, str]:
    """The text of every page of the documentation, by its path; the archive is left out."""
    return {
        name: path.read_text(encoding="utf-8")
        for pattern in _DOCS
        for path in sorted(ROOT.glob(pattern))
        if not (name := path.relative_to(ROOT).as_posix()).startswith(_DOCS_LEFT_OUT)
    }


def tests() -> Mapping[str, str]:
    """The text of every test and helper but this measure and its test, by path."""
    own = {"tests/support/house.py", "tests/unit/test_house.py"}
    return {
        name: path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (name := path.relative_to(ROOT).as_posix()) not in own
    }


def fixed_deadlines(texts: Mapping[str, str]) -> Sequence[str]:
    """Lines of tests that wait by the clock of the wall, which a busy machine fails.

    `within` of `deadlines.py` follows the machine. A timeout of 0 waits for nothing.
    """
    pattern = re.compile(r"\basyncio\.(timeout\((?!0\))|wait_for\()(?!.*# of the wall)")
    return [
        f"{path}:{number}: use `within` of tests/support/deadlines.py"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def report() -> Iterator[str]:
    """What `make house` prints."""
    modules = sources()
    rooms = lines_by_room(modules)
    for room, (files, lines) in sorted(rooms.items(), key=lambda item: -item[1][1]):
        yield f"{room:<18} {files:>4} files {lines:>7,} lines"
    total = sum(lines for _, lines in rooms.values())
    lab = rooms.get("lab", (0, 0))[1]
    yield f"{'product':<18} {total - lab:>19,} lines, {lab:,} in lab/, {len(modules)} files"
    for title, found in (
        (f"modules below {MIN_LINES} lines with one importer beside", small_siblings(modules)),
        (f"functions above {MAX_FUNCTION_LINES} lines", long_functions(modules)),
        (f"modules above {MAX_MODULE_LINES} lines", long_modules(modules)),
        ("private members of others outside their rooms", private_reaches(modules)),
        ("class names used twice", repeated_classes(modules)),
        ("words that are out, in code", words_out(modules)),
        ("words that are out, in docs", words_out(documents())),
        ("words that are out, in tests", words_out(tests())),
        ("deadlines of tests that no machine moves", fixed_deadlines(tests())),
    ):
        yield f"{title}: {len(found)}"
        for one in found:
            yield "    " + (one if isinstance(one, str) else " ".join(map(str, one)))


def _module_name(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return ".".join(("pop_stream", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        first = node.body[0]
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def _words_out(line: str) -> list[str]:
    return sorted(WORDS_OUT & {piece.lower() for piece in _PIECES.findall(line)})


if __name__ == "__main__":
    print("\n".join(report()))  # noqa: T201  # its purpose
