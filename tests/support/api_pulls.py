"""Helpers of `test_pulls.py` and of other tests."""

import json

import msgspec
from api_fakes import AT, agenda

from pop_stream.model.events.scheduling import EmittedAgenda

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
