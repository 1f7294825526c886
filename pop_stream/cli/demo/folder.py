"""Which data folder a run of the demo uses: the last one, unless that run did not end."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pop_stream.embedded.folder import DataFolder

_UNFINISHED: Final = "unfinished"


class DemoFolder:
    """A generation of data below one folder.

    A run that was interrupted leaves a backlog that would stand in the way of the next, so
    the next one begins a new generation.

    Args:
        parent: Holds one folder per generation.
    """

    def __init__(self, parent: Path) -> None:
        generations = _generations(parent)
        latest = max(generations, default=0)
        if latest and (parent / f"data-{latest}" / _UNFINISHED).exists():
            with DataFolder(parent / f"data-{latest}"):
                pass  # raises if that run goes on in another process
            latest += 1
        self._parent = parent
        self._generation = max(1, latest)
        self.path = parent / f"data-{self._generation}"

    def begin(self) -> None:
        """Note that there is a backlog now."""
        (self.path / _UNFINISHED).touch()

    def finish(self) -> None:
        """Note that all of it ended, and delete generations that nobody needs any more."""
        (self.path / _UNFINISHED).unlink(missing_ok=True)
        for number in _generations(self._parent):
            if number < self._generation:
                shutil.rmtree(self._parent / f"data-{number}", ignore_errors=True)


def _generations(parent: Path) -> list[int]:
    return sorted(_numbers(parent))


def _numbers(parent: Path) -> Iterator[int]:
    for path in parent.glob("data-*"):
        number = path.name.removeprefix("data-")
        if number.isdecimal():
            yield int(number)
