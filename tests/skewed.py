"""Runs `pop-stream` with a wall clock that is wrong: `skewed.py SECONDS COMMAND…`.

Wrong are our own clock and the timestamps of records; monotonic clocks go on as they are, and
so do the instants at which handlers note their starts.
"""

import sys
from datetime import timedelta
from typing import Any

from aiokafka import AIOKafkaProducer

from pop_stream.cli.main import main
from pop_stream.clock import WallClock

AHEAD = timedelta(seconds=float(sys.argv.pop(1)))
true_now, true_send = WallClock.now, AIOKafkaProducer.send


async def send(self: AIOKafkaProducer, *arguments: Any, **named: Any) -> Any:
    stamp = int(WallClock().now().timestamp() * 1000)
    return await true_send(self, *arguments, **{**named, "timestamp_ms": stamp})


WallClock.now = lambda self: true_now(self) + AHEAD
AIOKafkaProducer.send = send

if __name__ == "__main__":
    main()
