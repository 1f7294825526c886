"""Agendas as workers pull them over HTTP, and what they report with."""

import json

import msgspec
from api_fakes import AT, agenda

from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.policy.lease_token import LeaseClaims, LeaseTokens
from pop_stream.policy.lifecycle.fold import fold_all
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


def holder(one=None, settings=None, unfinished=2):
    """The body of a heartbeat by whoever has pulled this attempt, from whichever process."""
    secret = (settings or Settings()).lease_signing_keys
    token = LeaseTokens(secret).sign(LeaseClaims.of(one or emitted(), unfinished))
    return {**WHO, "lease_token": token}


def fold_when_asked(api):
    """Summaries lag until somebody asks how far they are, and then have all that is written."""
    topic, folded = Topics(Settings().topic_prefix).agenda_events, [0]

    async def next_offsets(_):
        records = api.publisher.on(topic)
        for record in records[folded[0] :]:
            for event in decode_lifecycle(record.value):
                known = api.summaries.agendas.get(event.agenda_id)
                after, _ = fold_all(known, [event])
                api.summaries.put(after)
        folded[0] = len(records)
        return dict.fromkeys(range(api.publisher.partition_count), 10**9)

    api.summaries.next_offsets = next_offsets
