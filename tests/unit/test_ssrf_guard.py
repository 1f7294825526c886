"""Addresses that a callback may go to, and those that it may not."""

import socket

import pytest

from pop_stream.ssrf_guard import ForbiddenAddressError, GuardedResolver, SsrfGuard

INTERNAL = [
    "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "0.0.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1",
    "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::",
    "2001:db8::1", "::127.0.0.1", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8", "fec0::1",
    "64:ff9b:1::a00:1", "100::1", "192.0.0.1", "192.0.0.170", "64:ff9b::c000:aa",
]  # fmt: skip


@pytest.mark.parametrize("address", INTERNAL)
def test_internal_addresses_are_refused(address):
    with pytest.raises(ForbiddenAddressError, match="internal"):
        SsrfGuard().check(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_addresses_of_everyone_pass(address):
    SsrfGuard().check(address)


def test_a_network_that_is_allowed_passes_and_its_neighbour_does_not():
    guard = SsrfGuard(["10.1.0.0/16", "::1/128"])
    guard.check("10.1.2.3")
    guard.check("::1")
    with pytest.raises(ForbiddenAddressError):
        guard.check("10.2.0.1")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:9/x", "http://[::1]/", "https://169.254.169.254/latest/meta-data/"],
)
def test_a_url_with_an_internal_address_is_refused(url):
    with pytest.raises(ForbiddenAddressError):
        SsrfGuard().check_url(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0",
        "127.0.0.1.", "127.000.000.001", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1%25lo]",
        "\uff11\uff12\uff17.0.0.1", "\u2460\u2461\u2466.0.0.1", "127\u30020\u30020\u30021",
        "134744072", "010.8.8.8",
    ],
)  # fmt: skip
def test_an_address_in_another_spelling_is_refused_before_anything_is_looked_up(host):
    with pytest.raises(ForbiddenAddressError):
        SsrfGuard().check_url(f"http://{host}:8080/x")


def test_a_socket_is_opened_for_addresses_that_may_be_called_alone():
    def found(address):
        return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 80)

    SsrfGuard().open_socket(found("8.8.8.8")).close()
    for address in ("127.0.0.1", "10.0.0.1"):
        with pytest.raises(ForbiddenAddressError):
            SsrfGuard().open_socket(found(address))
    with pytest.raises(ValueError, match=r"127\.1"):
        SsrfGuard().open_socket(found("127.1"))


def test_a_url_with_a_name_is_judged_when_the_name_is_looked_up():
    SsrfGuard().check_url("http://localhost/")


class Resolver:
    def __init__(self, *addresses):
        self._addresses = addresses

    async def resolve(self, host, port=0, family=socket.AF_UNSPEC):
        return [
            {"hostname": host, "host": one, "port": port, "family": 2, "proto": 6, "flags": 0}
            for one in self._addresses
        ]

    async def close(self):
        pass


async def test_a_name_with_one_internal_address_among_others_is_refused():
    resolver = GuardedResolver(SsrfGuard(), Resolver("8.8.8.8", "10.0.0.1"))
    with pytest.raises(ForbiddenAddressError, match=r"10\.0\.0\.1"):
        await resolver.resolve("tricky.example", 80)


async def test_the_addresses_that_were_judged_are_those_that_are_used():
    resolver = GuardedResolver(SsrfGuard(), Resolver("8.8.8.8", "8.8.4.4"))
    found = await resolver.resolve("fine.example", 443)
    assert [one["host"] for one in found] == ["8.8.8.8", "8.8.4.4"]


async def test_localhost_by_name_is_refused_for_real():
    with pytest.raises(ForbiddenAddressError):
        await GuardedResolver(SsrfGuard()).resolve("localhost", 80)
