"""The port of a stack's API: chosen before the API listens, and nobody else's from then on."""

import secrets
import socket

import pytest

from pop_stream.devserver.folder import PORTS, is_free_port
from pop_stream.devserver.stack import FIRST_PORT, api_port
from pop_stream.operations.errors import CommandError


@pytest.fixture
def free_port() -> int:
    """One that no other test is likely to take."""
    return next(one for _ in PORTS if is_free_port(one := secrets.choice(PORTS)))


def test_two_stacks_that_start_at_once_choose_two_ports():
    with api_port(None) as one, api_port(None) as other:
        assert one >= FIRST_PORT
        assert one != other


def test_the_api_listens_where_its_stack_holds_the_port():
    with api_port(None) as port, socket.socket() as api:
        api.bind(("127.0.0.1", port))
        api.listen()
        with api_port(None) as other:
            assert other != port


def test_a_wanted_port_that_another_stack_holds_is_an_error_that_names_it(free_port):
    with (
        api_port(free_port),
        pytest.raises(CommandError, match=f"port {free_port} is taken; .* with --port"),
        api_port(free_port),
    ):
        pass


def test_a_wanted_port_is_free_again_once_its_stack_has_ended(free_port):
    for _ in range(2):
        with api_port(free_port) as held:
            assert held == free_port


def test_no_port_at_all_is_an_error_and_not_a_loop(free_port, monkeypatch):
    monkeypatch.setattr("pop_stream.devserver.stack.FIRST_PORT", free_port)
    monkeypatch.setattr("pop_stream.devserver.stack._PORTS_TRIED", 1)
    with api_port(None), pytest.raises(CommandError, match="use --port"), api_port(None):
        pass
