"""Records the calls of one process; `pop-stream lab walk` has every part import this first.

The walk copies this file as `sitecustomize.py` into a folder that it puts on PYTHONPATH, so
that the interpreter runs it before anything of the product, which knows nothing of it. It
imports the standard library only. In a process that is not `python -m <package> <part>`, or
that has not the two variables below, it does nothing.

The file `control` in the recordings' folder names the window to record, and is empty between
windows. A process switches within 20 ms: it writes `<window>.<part>.<pid>.json` when a window
is over, and then into `switched.<part>.<pid>` which window is open now. Times are nanoseconds
of the machine's monotonic clock, which all processes share.
"""

import dis
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

FOLDER: Final = "LAB_WALK_FOLDER"
"""Variable: where recordings are written."""

PACKAGE: Final = "LAB_WALK_PACKAGE"
"""Variable: folder of the package whose functions are recorded; its last part is its name."""

_POLL_EVERY_S: Final = 0.01


class Recorder:
    """Records what one process calls, in all its threads, while a window is open.

    A record is `[instant, thread, event, file, function, line]`; the event is `call`, `resume`
    (of a coroutine or generator) or `return` (also what awaiting and yielding do).

    Args:
        folder: Of the control file and the recordings.
        package: Only functions of files below it are recorded.
        part: The process' name in the recordings.
    """

    def __init__(self, folder: Path, package: str, part: str) -> None:
        self._folder = folder
        self._package = package.rstrip("/") + "/"
        self._process = f"{part}.{os.getpid()}"
        self._is_open = False
        self._records: list[tuple[int, int, str, CodeType]] = []
        self._starts: dict[CodeType, int | None] = {}

    def start(self) -> None:
        """Follow the control file from now on; threads that run already are not recorded."""
        threading.Thread(target=self._follow, daemon=True, name="lab walk").start()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if not self._is_open or event not in ("call", "return"):
            return
        code = frame.f_code
        try:
            start = self._starts[code]
        except KeyError:
            start = self._starts[code] = self._start_of(code)
        if start is None:
            return
        if event == "call" and frame.f_lasti > start:
            event = "resume"
        self._records.append((time.monotonic_ns(), threading.get_ident(), event, code))

    def _start_of(self, code: CodeType) -> int | None:
        """The offset up to which a call is the first; None for code that is not recorded."""
        if not code.co_filename.startswith(self._package):
            return None
        resumes = (one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")
        return next(resumes, 0)

    def _follow(self) -> None:
        window: str | None = None
        while True:
            wanted = self._wanted()
            if wanted != window:
                self._is_open = False
                if window:
                    self._write(window)
                self._is_open = bool(wanted)
                (self._folder / f"switched.{self._process}").write_text(wanted)
                window = wanted
            time.sleep(_POLL_EVERY_S)

    def _wanted(self) -> str:
        try:
            return (self._folder / "control").read_text()
        except FileNotFoundError:  # the walk has not begun, or is over
            return ""

    def _write(self, window: str) -> None:
        records, self._records = self._records, []
        cut = len(self._package)
        rows = [
            (at, thread, event, code.co_filename[cut:], code.co_qualname, code.co_firstlineno)
            for at, thread, event, code in records
        ]
        (self._folder / f"{window}.{self._process}.json").write_text(json.dumps(rows))


def start() -> None:
    """Record this process if it is a part of a system that is walked through."""
    folder, package = os.environ.get(FOLDER), os.environ.get(PACKAGE)
    if not folder or not package:
        return
    _, *arguments = sys.orig_argv
    match arguments[:3]:
        case ["-m", name, part] if name == Path(package).name:
            Recorder(Path(folder), package, part).start()


if __name__ == "sitecustomize":
    start()
