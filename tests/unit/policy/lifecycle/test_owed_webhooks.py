"""What is owed to whom, and how it is signed."""

import hashlib
import hmac
from datetime import UTC, datetime

import msgspec
import pytest

from pop_stream.policy.lifecycle.states import OUTCOMES, State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.policy.lifecycle.webhooks import signature, webhook_payload, webhook_secret

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUNNING = Summary(
    agenda_id="a-1",
    state=State.RUNNING,
    customer_id="anna",
    link_id="reel-7",
    callback_url="https://x.example",
)


def become(state: State, **changes) -> Summary:
    return msgspec.structs.replace(RUNNING, state=state, **changes)


@pytest.mark.parametrize("state", sorted(OUTCOMES, key=lambda one: one.value))
def test_every_end_of_an_accepted_agenda_owes_a_webhook(state):
    got = webhook_payload(RUNNING, become(state))
    assert got is not None
    assert (got.id, got.state, got.customer_id) == ("a-1/1", state.value, "anna")
    assert got.link_id == "reel-7"


@pytest.mark.parametrize("state", sorted(set(State) - OUTCOMES, key=lambda one: one.value))
def test_nothing_else_is_listed(state):
    assert webhook_payload(None, become(state)) is None


def test_without_an_address_nothing_is_owed():
    assert webhook_payload(RUNNING, become(State.SUCCEEDED, callback_url=None)) is None


def test_a_change_after_the_end_is_not_reported_again():
    ended = become(State.SUCCEEDED)
    assert webhook_payload(ended, become(State.SUCCEEDED, message="late")) is None


def test_an_end_folded_before_the_acceptance_is_reported_with_it():
    early = become(State.SUCCEEDED, callback_url=None)
    assert webhook_payload(early, become(State.SUCCEEDED)) is not None


def test_an_agenda_that_ends_again_in_a_later_attempt_is_reported_again():
    again = webhook_payload(become(State.FAILED), become(State.SUCCEEDED, attempt=2))
    assert again is not None
    assert again.id == "a-1/2"


def test_a_receiver_can_check_the_signature_with_its_secret_alone():
    secret = webhook_secret("anna", b"the operator's key")
    got = signature(b'{"id":"a-1/1"}', AT, [secret])
    seconds, mark = got.split(",")
    assert seconds == f"t={int(AT.timestamp())}"
    wanted = hmac.new(
        secret.encode(),
        f"{seconds.removeprefix('t=')}.".encode() + b'{"id":"a-1/1"}',
        hashlib.sha256,
    )
    assert mark == f"v1={wanted.hexdigest()}"


def test_customers_and_keys_have_secrets_of_their_own():
    secrets = {webhook_secret(who, key) for who in ("anna", "bruno") for key in (b"k1", b"k2")}
    assert len(secrets) == 4
    assert all(len(one) == 64 for one in secrets)


def test_while_keys_change_both_sign():
    assert signature(b"{}", AT, ["new", "old"]).count("v1=") == 2
