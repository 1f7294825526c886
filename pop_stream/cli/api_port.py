"""A port for a stack's API that no other stack takes while this one lasts."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pop_stream.cli.errors import CommandError
from pop_stream.embedded.folder import is_free_port

FIRST_PORT: Final = 8080
_PORTS_TRIED: Final = 100


@contextmanager
def api_port(wanted: int | None) -> Iterator[int]:
    """The wanted port, or the first free one from `FIRST_PORT` on; kept while entered.

    The API begins to listen only seconds later, and does not while it is started again. For
    that time a UDP socket of the same number, which the API has no use for, is what other
    stacks find taken: else both would choose one port, and one would talk to the other's API.

    Raises:
        CommandError: If it is taken.
    """
    candidates = [wanted] if wanted else range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED)
    with socket.socket(type=socket.SOCK_DGRAM) as held:
        for port in candidates:
            if is_free_port(port) and _try_bind(held, port):
                break
        else:
            raise CommandError(_port_taken_message(wanted))
        yield port


def _try_bind(held: socket.socket, port: int) -> bool:
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def _port_taken_message(wanted: int | None) -> str:
    if wanted:
        return f"port {wanted} is taken; choose another with --port"
    return f"no port from {FIRST_PORT} to {FIRST_PORT + _PORTS_TRIED} is free; use --port"
