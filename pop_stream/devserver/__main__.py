"""`python -m pop_stream.devserver --folder DIR`: both servers, until a signal ends them."""

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

import structlog

from pop_stream.devserver.errors import DevServerError
from pop_stream.devserver.servers import DevServers


async def serve(folder: Path, cache: Path | None) -> None:
    """Start both, write one JSON line with their addresses, stay until SIGINT or SIGTERM.

    Raises:
        DevServerError: If they do not start, or one ends by itself later.
    """
    loop = asyncio.get_running_loop()
    this_task = asyncio.current_task()
    assert this_task is not None  # noqa: S101  a coroutine runs in a task
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, this_task.cancel)
    async with DevServers(folder, cache=cache) as servers:
        ready = {"bootstrap": servers.bootstrap, "dsn": servers.dsn}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        raise await servers.failed()


def main() -> int:
    """Run from the command line; 0 after a signal, 1 with a message if the servers fail."""
    parser = argparse.ArgumentParser(prog="python -m pop_stream.devserver", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the data live")
    parser.add_argument("--cache", type=Path, help="where Kafka's jars are kept")
    arguments = parser.parse_args()
    # Standard output carries the one JSON line and nothing else.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        asyncio.run(serve(arguments.folder, arguments.cache))
    except asyncio.CancelledError:
        return 0
    except DevServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
