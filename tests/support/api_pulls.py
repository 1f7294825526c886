"""Agendas as workers pull them over HTTP, and what they report with."""

import json

import msgspec
from api_fakes import AT, agenda

from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.policy.lease_token import LeaseClaims, LeaseTokens
from pop_stream.settings import Settings

WHO = {"puller_id": "w1"}


def emitted(agenda_id="a1", attempt=2, **changes):
    operations = [{"name": "fetch", "type": "http"}, {"name": "store", "type": "sql"}]
    body = agenda(id=agenda_id, operations=operations)
    known = {
        "agenda_id": agenda_id,
        "insight_id": "files",
        "customer_id": "acme",
        "attempt": attempt,
        "accepted_at": AT,
        "emitted_at": AT,
        "lease_ms": 60_000,
        "agenda": msgspec.Raw(json.dumps(body).encode()),
    }
    return EmittedAgenda(**(known | changes))


def holder(one=None, settings=None):
    """The body of a heartbeat by whoever has pulled this attempt, from whichever process."""
    secret = (settings or Settings()).lease_signing_key
    token = LeaseTokens(secret).sign(LeaseClaims.of(one or emitted()))
    return {**WHO, "lease_token": token}
