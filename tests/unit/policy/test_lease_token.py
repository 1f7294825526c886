"""The token that proves a lease: whoever has the key reads it, nobody else can make one."""

from datetime import UTC, datetime

import pytest
from puller_fakes import emitted

from pop_stream.policy.lease_token import MAX_TOKEN_LENGTH, LeaseClaims, LeaseTokens

TOKENS = LeaseTokens([b"a secret"])


def test_another_process_reads_what_one_has_signed():
    one = emitted(attempt=3, run_from=2, accepted_at=datetime(2026, 1, 2, 3, 4, 5, 6, UTC))
    claims = LeaseClaims.of(one)
    token = TOKENS.sign(claims)
    assert LeaseTokens([b"a secret"]).read(token) == claims
    assert token == LeaseTokens([b"a secret"]).sign(claims)


def test_the_longest_names_fit():
    claims = LeaseClaims.of(emitted(agenda_id="x" * 300, insight_id="y" * 300))
    assert len(TOKENS.sign(claims)) < MAX_TOKEN_LENGTH


def test_every_change_of_a_character_is_found():
    token = TOKENS.sign(LeaseClaims.of(emitted()))
    for place in range(len(token)):
        other = "A" if token[place] != "A" else "B"
        assert TOKENS.read(token[:place] + other + token[place + 1 :]) is None, place


@pytest.mark.parametrize("noise", ["", ".", "..", "v1..", "v1.a", "ä.ö.ü", "v1.e30=.e30="])
def test_noise_is_no_token(noise):
    assert TOKENS.read(noise) is None


def test_another_secret_signs_other_tokens():
    token = LeaseTokens([b"another secret"]).sign(LeaseClaims.of(emitted()))
    assert TOKENS.read(token) is None


def test_tokens_of_the_secret_before_are_read_until_it_is_left_out():
    claims = LeaseClaims.of(emitted())
    before, now = LeaseTokens([b"old"]), LeaseTokens([b"new", b"old"])
    assert now.read(before.sign(claims)) == claims
    assert before.read(now.sign(claims)) is None
    assert LeaseTokens([b"new"]).read(now.sign(claims)) == claims
    assert LeaseTokens([b"new"]).read(before.sign(claims)) is None
