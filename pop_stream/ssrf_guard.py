"""Which addresses customers may have us call: none of our own network's.

Customers name the addresses of webhooks and of `http` operations. A name is looked up once for
each connection, every address found is checked, and the connection is made to an address that
was checked: a name that answers otherwise a moment later reaches nothing. Checked again is the
address that a socket is opened for, whatever led to it, a redirect too.

Make clients with `guarded_connector`, and find its refusal with `refusal_behind`.
"""

import socket
from collections.abc import Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from pop_stream.model.errors import PopStreamError

Address = IPv4Address | IPv6Address

_NAT64: Final = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = (_NAT64, IPv6Network("2000::/3"))
"""All that is given to hosts of the Internet. The library takes for global whatever it knows
no purpose of: former site-local addresses, and several ways to write one of IPv4."""

_IETF_PROTOCOL_ASSIGNMENTS: Final = IPv4Network("192.0.0.0/24")
"""To protocols, such as NAT64 and its discovery."""


class ForbiddenAddressError(PopStreamError):
    """The address is not one that customers may have called."""

    code = "forbidden_address"


class SsrfGuard:
    """Checks addresses.

    Args:
        allowed: Networks that may be called though they are internal, as in `10.1.0.0/16`.

    Raises:
        ValueError: If one of them is no network.
    """

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        self._allowed = [ip_network(one) for one in allowed]

    def check(self, address: str) -> None:
        """Let an address pass, or raise ForbiddenAddressError.

        Refused is what is not reachable by everyone: loopback, private, link-local (where
        clouds keep their metadata), multicast, reserved; IPv4 inside of IPv6 is unpacked.
        """
        found = ip_address(address.partition("%")[0])
        if any(found.version == one.version and found in one for one in self._allowed):
            return
        for one in (found, *_embedded_ipv4(found)):
            if not _is_global(one):
                msg = f"{address} is an internal address"
                raise ForbiddenAddressError(msg)

    def check_url(self, url: str) -> None:
        """Refuse a URL whose host is an internal address itself; names are checked later.

        Refused too is an address in another spelling, such as `127.1`, `0x7f000001` or
        `2130706433`: a client may take it for an address that need not be looked up, and the
        system reads it as one.
        """
        host = URL(url).host or ""
        try:
            ip_address(host)
        except ValueError:
            if _is_read_as_address(host):
                msg = f"{host} may be an internal address: write it as four numbers"
                raise ForbiddenAddressError(msg) from None
            return
        self.check(host)

    def open_socket(self, found: AddrInfoType) -> socket.socket:
        """The socket for a connection to an address that may be called."""
        family, kind, protocol, _, place = found
        self.check(str(place[0]))
        return socket.socket(family, kind, protocol)


def guarded_connector(guard: SsrfGuard, *, limit: int) -> TCPConnector:
    """Connections to addresses that may be called; for one session, which closes it.

    Args:
        guard: Says which those are.
        limit: Most at a time; 0 for any number.
    """
    return TCPConnector(
        resolver=GuardedResolver(guard),
        socket_factory=guard.open_socket,
        use_dns_cache=False,
        limit=limit,
    )


def refusal_behind(error: BaseException) -> ForbiddenAddressError | None:
    """The guard's refusal, if that caused a client's error or is it; else None."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ForbiddenAddressError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


class GuardedResolver(AbstractResolver):
    """Looks names up; one with an address that is not to be called is refused as a whole."""

    def __init__(self, guard: SsrfGuard, resolver: AbstractResolver | None = None) -> None:
        self._guard = guard
        self._resolver = resolver or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name, each of which may be called."""
        found = await self._resolver.resolve(host, port, family)
        for one in found:
            self._guard.check(one["host"])
        return found

    async def close(self) -> None:
        """Close the resolver behind it."""
        await self._resolver.close()


def _is_read_as_address(host: str) -> bool:
    try:
        socket.inet_aton(host.rstrip("."))
    except (OSError, ValueError):
        return False
    return True


def _is_global(address: Address) -> bool:
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, IPv6Address):
        return any(address in one for one in _GLOBAL_UNICAST)
    return address not in _IETF_PROTOCOL_ASSIGNMENTS


def _embedded_ipv4(address: Address) -> list[Address]:
    """Addresses of IPv4 that an address of IPv6 stands for."""
    if isinstance(address, IPv4Address):
        return []
    found: list[Address] = [one for one in (address.ipv4_mapped, address.sixtofour) if one]
    if address.teredo:
        found += address.teredo
    if address in _NAT64:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return found
