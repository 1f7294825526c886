"""The path of a submission: what is cut, what is background, what a part records."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pop_stream.lab.walk import recorder
from pop_stream.lab.walk.walk import Step, Walk, cut, overview, shape, shortest

PART = """
import asyncio, pathlib, sys, time

async def inner(path):
    await asyncio.sleep(0)
    return [one for one in (1, 2)]

async def outer(path):
    while not path.exists() or path.read_text() != "open":
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    await inner(path)

asyncio.run(outer(pathlib.Path(sys.argv[2]) / "control"))
time.sleep(30)
"""


def steps(text, part="api", thread=1, at=0):
    """Steps such as `+a.f` (a call), `~a.f` (a resumption) and `-a.f` (a return)."""
    kinds = {"+": "call", "~": "resume", "-": "return"}
    for number, word in enumerate(text.split(), at):
        file, _, function = word[1:].partition(".")
        yield Step(part, number, thread, kinds[word[0]], file, function, 1)


def test_a_stretch_ends_where_nothing_is_entered_any_more():
    found = cut(steps("+a.f +b.g -b.g -a.f +c.h -c.h"))
    assert [[one.function for one in stretch] for stretch in found] == [
        list("fggf"),
        list("hh"),
    ]


def test_returns_without_a_call_are_left_out():
    assert cut(steps("-a.f")) == []
    assert [len(one) for one in cut(steps("-a.f +b.g -a.f -b.g"))] == [2]


def test_what_is_not_left_yet_is_a_stretch_too():
    assert [len(one) for one in cut(steps("+a.f +b.g"))] == [2]


def test_threads_and_parts_do_not_mix():
    mixed = [*steps("+a.f -a.f", thread=1), *steps("+b.g -b.g", thread=2, at=1)]
    mixed += steps("+c.h -c.h", part="rollup", at=2)
    assert [one[0].file for one in cut(mixed)] == ["a", "b", "c"]


def test_a_shape_tells_parts_calls_and_resumptions_apart():
    texts = ["+a.f -a.f", "~a.f -a.f", "+a.f +a.g -a.g -a.f"]
    shapes = {shape(cut(steps(text, part))[0]) for text in texts for part in ("api", "pull")}
    assert len(shapes) == 6
    assert shape(cut(steps("+a.f -a.f", thread=7))[0]) in shapes


def test_background_does_not_count_and_what_calls_the_same_functions_does():
    tick = "+tick.run +log.say -log.say -tick.run"
    idle = {shape(one) for one in cut(steps(tick))}
    work = [*steps(tick), *steps("+api.accept +log.say -log.say -api.accept", at=10)]
    walked = Walk.of(work, idle, began=0, ended=100)
    assert walked.figures() == {"files": 2, "functions": 2, "changes": 2}
    assert len(walked.background) == 1


def test_what_begins_outside_the_window_does_not_count():
    work = [*steps("+a.f -a.f", at=0), *steps("+b.g -b.g", at=10), *steps("+c.h -c.h", at=20)]
    assert Walk.of(work, set(), began=5, ended=15).figures()["files"] == 1


def test_what_is_only_resumed_was_not_entered_but_control_changes():
    walked = Walk.of(steps("~a.f +b.g -b.g -a.f"), set(), began=0, ended=9)
    assert walked.figures() == {"files": 1, "functions": 1, "changes": 2}


def test_the_shortest_walk_is_reported_beside_the_others():
    walks = [
        Walk.of(steps(text), set(), began=0, ended=9)
        for text in ("+a.f +b.g -b.g -a.f", "+a.f -a.f", "+a.f +b.g -b.g +b.h -b.h -a.f")
    ]
    assert shortest(walks) is walks[1]
    shown = next(line for line in overview(walks) if line.startswith("functions"))
    assert shown.split(maxsplit=1)[1] == "1  (least 1, median 2, most 3 of 3 runs)"


@pytest.fixture
def recorded_part(tmp_path):
    """A process of a package of its own that records when the control file says so."""
    package = tmp_path / "little"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PART)
    (tmp_path / "sitecustomize.py").write_text(Path(recorder.__file__).read_text())
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "little", "serve", str(tmp_path)],
        env=os.environ
        | {
            "PYTHONPATH": str(tmp_path),
            recorder.FOLDER: str(tmp_path),
            recorder.PACKAGE: str(package),
        },
    )
    yield tmp_path
    process.kill()
    process.wait()


def until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_part_records_between_opening_and_closing(recorded_part):
    until(lambda: [*recorded_part.glob("switched.serve.*")])
    switched = next(recorded_part.glob("switched.serve.*"))
    control = recorded_part / "control"
    (recorded_part / "new").write_text("open")
    (recorded_part / "new").rename(control)
    until(lambda: switched.read_text() == "open")
    time.sleep(1)
    control.write_text("")
    until(lambda: switched.read_text() == "")
    rows = json.loads(next(recorded_part.glob("open.serve.*.json")).read_text())
    assert {row[3] for row in rows} == {"__main__.py"}
    events = [(row[2], row[4]) for row in rows if row[4] != "outer"]
    assert [one for one in events if one[1] == "inner"] == [
        ("call", "inner"),
        ("return", "inner"),
        ("resume", "inner"),
        ("return", "inner"),
    ]
