"""Runs `pop-stream` with a wall clock that is wrong: `skewed.py FILE COMMAND…`.

The file says by how many seconds it is ahead, and may be written again at any time.

Wrong are our own clock and the timestamps of records; monotonic clocks go on as they are, and
so do the instants at which handlers note their starts.
"""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder

from pop_stream.__main__ import main
from pop_stream.clock import WallClock

AHEAD = Path(sys.argv.pop(1))
true_now, true_append = WallClock.now, BatchBuilder.append


def append(self: BatchBuilder, *, timestamp: int | None, **record: Any) -> Any:
    stamp = int(WallClock().now().timestamp() * 1000) if timestamp is None else timestamp
    return true_append(self, timestamp=stamp, **record)


def now(self: WallClock) -> datetime:
    return true_now(self) + timedelta(seconds=float(AHEAD.read_text()))


WallClock.now = now
BatchBuilder.append = append

if __name__ == "__main__":
    main()
