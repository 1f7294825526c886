"""What a completion token completes, and what refuses it."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.events.base import OperationProgress
from pop_stream.model.ids import ID_LENGTH, INSIGHT_ID_LENGTH
from pop_stream.policy.completion_token import (
    MAX_COMPLETION_TOKEN_LENGTH,
    CompletionClaims,
    CompletionTokens,
    completion_claims,
    completion_digest,
    hand_over,
    refusal_of,
    renewed,
)
from pop_stream.policy.lease_token import LeaseClaims, LeaseTokens
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKENS = CompletionTokens([b"a secret"])
CLAIMS = CompletionClaims("a1", "media", 1, NOW, "calls", NOW, NOW + timedelta(seconds=100))
TOKEN = TOKENS.sign(CLAIMS)


def known(progress="waiting", *, token=TOKEN, **changes):
    """The summary of an agenda in attempt 2, whose operation was handed over in attempt 1."""
    wait = hand_over(token, CLAIMS, NOW) if token else None
    calls = OperationProgress(name="calls", state=progress, wait=wait)
    one = Summary(
        agenda_id="a1",
        state=State.WAITING,
        insight_id="media",
        attempt=2,
        accepted_at=NOW,
        operation_names=("calls",),
        operations={"calls": calls},
    )
    return msgspec.structs.replace(one, **changes)


def test_a_token_says_what_it_was_made_of_to_whoever_has_it():
    assert TOKENS.read(TOKEN) == completion_claims(TOKEN) == CLAIMS


@given(
    position=st.integers(0, len(TOKEN) - 1),
    other=st.sampled_from("abzAZ019-_=."),
)
def test_a_token_that_was_changed_is_none(position, other):
    changed = TOKEN[:position] + other + TOKEN[position + 1 :]
    assert changed == TOKEN or TOKENS.read(changed) is None


@given(st.text(max_size=60))
def test_what_is_no_token_is_none_and_no_fault(text):
    assert TOKENS.read(text) is None
    completion_claims(text)


def test_a_token_of_another_purpose_or_secret_is_none():
    lease = LeaseTokens([b"a secret"]).sign(LeaseClaims("a1", "media", 1, NOW, 60_000, 0))
    assert TOKENS.read(lease) is None
    assert CompletionTokens([b"another"]).read(TOKEN) is None
    assert LeaseTokens([b"a secret"]).read(TOKEN) is None


def test_no_token_is_longer_than_may_be_sent():
    longest = msgspec.structs.replace(
        CLAIMS,
        agenda_id="a" * ID_LENGTH,
        insight_id="i" * INSIGHT_ID_LENGTH,
        operation="\N{GRINNING FACE}" * 200,
    )
    assert len(TOKENS.sign(longest)) <= MAX_COMPLETION_TOKEN_LENGTH


def test_a_hand_over_is_looked_at_only_after_its_end():
    wait = hand_over(TOKEN, CLAIMS, NOW)
    assert (wait.kind, wait.token) == ("completion", completion_digest(TOKEN))
    assert wait.gives_up_at == CLAIMS.expires_at < wait.until
    later = wait.until + timedelta(days=1)
    again = renewed(wait, later)
    assert again.until > later
    assert (again.token, again.gives_up_at, again.since) == (wait.token, wait.gives_up_at, NOW)


@pytest.mark.parametrize(
    ("summary", "kind", "why"),
    [
        (known(), None, ""),
        (known(state=State.HELD), None, ""),
        # The token is of a run after the first, which was accepted later than the agenda.
        (known(accepted_at=NOW - timedelta(days=1)), None, ""),
        # Not reported yet: the attempt runs, or the summary lags.
        (known("running", token="", attempt=1, state=State.RUNNING), None, ""),
        (known("waiting", token="", attempt=1, operations={}), None, ""),
        (known(operation_names=(), attempt=1), "unknown", "operation is not known yet"),
        (None, "unknown", "agenda is not known yet"),
        # The operation went another way.
        (known(token=f"{TOKEN}x"), "outdated", "handed over again, with another token"),
        (known("running", token=""), "outdated", "of attempt 1, and attempt 2 has followed"),
        (known("failed", token="", attempt=1), "outdated", "has failed without it"),
        (known(insight_id="other"), "outdated", "not in insight 'media'"),
        (known(operation_names=()), "outdated", "no such operation"),
        # It is over.
        (known(state=State.CANCELLED), "late", "has ended: cancelled"),
        (known(accepted_at=NOW + timedelta(days=1)), "late", "another has its id"),
    ],
)
def test_what_a_token_completes(summary, kind, why):
    refusal = refusal_of(CLAIMS, TOKEN, summary, NOW)
    assert (refusal[0] if refusal else None) == kind
    assert why in (refusal[1] if refusal else "")


def test_after_its_time_it_completes_nothing():
    at = CLAIMS.expires_at
    assert refusal_of(CLAIMS, TOKEN, known(), at - timedelta(seconds=1)) is None
    assert refusal_of(CLAIMS, TOKEN, known(), at)[0] == "late"
    assert refusal_of(CLAIMS, TOKEN, None, at - timedelta(seconds=1))[0] == "late"
