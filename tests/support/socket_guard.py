"""A guard for tests that may not leave the process."""

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class SocketUsedError(AssertionError):
    """A test that must run alone tried to reach something."""


@contextmanager
def sockets_blocked(*, loopback: bool) -> Iterator[None]:
    """Refuse connections; the event loop's own pair of sockets needs none.

    Args:
        loopback: Whether this machine's own servers may be reached all the same.
    """
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def check(address: object) -> None:
        if not (loopback and _is_loopback(address)):
            msg = f"a test of this folder may not connect to {address!r}"
            raise SocketUsedError(msg)

    def guarded(sock: socket.socket, address: object) -> None:
        check(address)
        return connect(sock, address)

    def guarded_ex(sock: socket.socket, address: object) -> int:
        check(address)
        return connect_ex(sock, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        patch.setattr(socket.socket, "connect_ex", guarded_ex)
        yield


def _is_loopback(address: object) -> bool:
    if not isinstance(address, tuple):
        return True  # a Unix socket
    try:
        return ipaddress.ip_address(address[0]).is_loopback
    except ValueError:
        return address[0] == "localhost"
