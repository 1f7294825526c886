"""What the scheduler gets of the lifecycle, in reports that fit."""

from datetime import timedelta

import pytest
from backlogs import START, backlog, placed
from consumer_records import record
from fakes import FixedDefinitions, ManualClock, MemoryPublisher
from msgspec import Raw
from msgspec.structs import replace

from pop_stream.kafka.lifecycle_reader import FRAME_BYTES
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import decode_ready, decode_routed, encode
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaCommanded,
    AgendaEmitted,
    AgendaFailed,
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaRestarted,
    AgendaStopped,
    AgendaSucceeded,
)
from pop_stream.model.events.scheduling import (
    MAX_MESSAGE_LENGTH,
    Claim,
    Command,
    IdleRunners,
    InsightAgendasRouted,
    InsightAttemptsReported,
    Origin,
    Settlement,
)
from pop_stream.model.ids import HTTP_PULLER
from pop_stream.model.partitioning import partition_of
from pop_stream.policy.backlog.agenda_index import PAGE_SLOTS
from pop_stream.policy.backlog.reports import apply_relayed
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.relay.relay import COMMAND_ORIGIN, Relay, translate
from pop_stream.settings import Settings

TOPICS = Topics("t.")

CLOCK = ManualClock(START)


def claimed(agenda_id, insight_id="media", attempt=1):
    return AgendaClaimed(
        agenda_id=agenda_id,
        at=START,
        insight_id=insight_id,
        attempt=attempt,
        puller_id="p",
        lease_ms=1_000,
    )


def succeeded(agenda_id, insight_id="media", attempt=1, **spent_s):
    return AgendaSucceeded(
        agenda_id=agenda_id, at=START, insight_id=insight_id, attempt=attempt, spent_s=spent_s
    )


def failed(agenda_id, insight_id="media"):
    return AgendaFailed(
        agenda_id=agenda_id,
        at=START + timedelta(seconds=1),
        insight_id=insight_id,
        attempt=2,
        message="no",
        spent_s={"cut": 0.5},
    )


async def relayed(*values, definitions=None, publisher=None):
    publisher = publisher or MemoryPublisher()
    known = FixedDefinitions(definitions or Definitions())
    relay = Relay(Settings(topic_prefix="t."), publisher, known, CLOCK)
    await relay.handle([record(value, offset=n) for n, value in enumerate(values)])
    return publisher.records


def place(offset, index):
    return Origin(partition=COMMAND_ORIGIN, offset=offset, index=index)


async def tell(target, *lifecycle):
    """Apply to a backlog what the relay makes of these events."""
    for event in notes(await relayed(*map(encode, lifecycle))):
        if isinstance(event, InsightAgendasRouted):
            agendas = [decode_routed(one) for one in event.agendas]
            target.place(
                [agendas[index] for index in target.filter_new(agendas, event.origins)]
            )
        else:
            apply_relayed(target, event, 0.0)


def notes(records):
    return [event for one in records for event in decode_ready(one.value)]


async def pause_s_after(*values):
    """For how long the next batch gathers once the relay has seen these."""
    relay = Relay(
        Settings(topic_prefix="t."),
        MemoryPublisher(),
        FixedDefinitions(Definitions()),
        CLOCK,
        now=lambda: 5.0,
    )
    relay._pacer.begin()
    await relay.handle([record(encode(value), offset=n) for n, value in enumerate(values)])
    return relay._pacer.pause_s


def emitted(agenda_id, *, expedite_reports):
    return AgendaEmitted(
        agenda_id=agenda_id,
        at=START,
        insight_id="media",
        attempt=1,
        expedite_reports=expedite_reports,
    )


async def test_events_gather_for_longer_where_no_agenda_waits_for_room():
    calm = await pause_s_after(emitted("a", expedite_reports=False), claimed("a"))
    crowded = await pause_s_after(emitted("a", expedite_reports=True), claimed("a"))
    assert (calm, crowded) == pytest.approx((0.05, 0.008))


def test_claims_and_ends_become_one_note_per_insight_in_order():
    found = translate(
        [
            claimed("a"),
            claimed("x", "video"),
            succeeded("a", cut=0.25),
            failed("b"),
            claimed("c", attempt=3),
        ]
    )
    assert found == [
        InsightAttemptsReported(
            insight_id="media",
            claims=(Claim(agenda_id="a", attempt=1), Claim(agenda_id="c", attempt=3)),
            settlements=(
                Settlement(
                    agenda_id="a", attempt=1, outcome="succeeded", spent_s={"cut": 0.25}
                ),
                Settlement(
                    agenda_id="b",
                    attempt=2,
                    outcome="failed",
                    spent_s={"cut": 0.5},
                    retryable=True,
                    message="no",
                ),
            ),
            idle=(IdleRunners("p", 0),),
        ),
        InsightAttemptsReported(
            insight_id="video",
            claims=(Claim(agenda_id="x", attempt=1),),
            idle=(IdleRunners("p", 0),),
        ),
    ]


def test_the_scheduler_learns_that_a_runner_stood_idle():
    [note] = translate([replace(claimed("a"), sync_matched=True), claimed("b")])
    assert note.claims == (Claim("a", 1, sync_matched=True), Claim("b", 1))


def test_the_scheduler_learns_who_reports_through_the_api():
    [note] = translate([replace(claimed("a"), puller_id=HTTP_PULLER), claimed("b")])
    assert note.claims == (Claim("a", 1, by_http=True), Claim("b", 1))


def test_the_scheduler_learns_how_many_runners_each_puller_has_left():
    first, last = replace(claimed("a"), idle=7), replace(claimed("b"), idle=5)
    other = replace(claimed("c"), puller_id="q", idle=2, insights=3)
    [note] = translate([first, last, other])
    assert note.idle == (IdleRunners("p", 5), IdleRunners("q", 2, insights=3))


def test_a_name_that_no_puller_could_have_is_not_passed_on():
    [note] = translate([replace(claimed("a"), puller_id="p" * 100_000, idle=7)])
    assert note.claims == (Claim("a", 1),)
    assert note.idle == ()


def test_the_rest_of_the_lifecycle_is_not_the_schedulers():
    accepted = AgendaAccepted(
        agenda_id="a", at=START, insight_id="media", customer_id="c", agenda=Raw(b"{}")
    )
    emitted = AgendaEmitted(agenda_id="a", at=START, insight_id="media", attempt=1)
    assert translate([accepted, emitted]) == []


async def test_frames_and_lone_events_are_read_alike():
    records = await relayed(encode([claimed("a"), claimed("b")]), encode(claimed("c")))
    [note] = notes(records)
    assert [claim.agenda_id for claim in note.claims] == ["a", "b", "c"]


async def test_nothing_to_tell_writes_nothing():
    emitted = AgendaEmitted(agenda_id="a", at=START, insight_id="media", attempt=1)
    assert await relayed(encode(emitted)) == []


async def test_notes_go_where_the_insight_is_decided_for():
    pooled = Insight(id="media", pool="gpu")
    known = Definitions(insights={"media": pooled})
    [one] = await relayed(encode(claimed("a")), definitions=known)
    assert (one.topic, one.key) == (TOPICS.ready, b"media")
    assert one.partition == partition_of(b"pool/gpu", 4)
    [other] = await relayed(encode(claimed("a", "video")), definitions=known)
    assert other.partition == partition_of(b"video", 4)


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"[" * 100_000, b'{"type":"?"}'])
async def test_an_unreadable_record_is_passed_over(value):
    [note] = notes(await relayed(value, encode(claimed("a"))))
    assert note.claims == (Claim(agenda_id="a", attempt=1),)


@pytest.mark.parametrize("wrong", [claimed("a" * 400_000), claimed("a", "i" * 400_000)])
async def test_ids_that_cannot_be_are_passed_over(wrong):
    [note] = notes(await relayed(encode([wrong, claimed("a")])))
    assert note.claims == (Claim(agenda_id="a", attempt=1),)


async def test_a_backlog_of_events_is_relayed_in_reports_that_fit():
    names = [f"agenda-{number:025d}" for number in range(9_000)]
    values = [encode([claimed(one), succeeded(one, cut=0.123456)]) for one in names]
    records = await relayed(*values)
    assert len(records) > 2
    assert max(len(one.value) for one in records) <= FRAME_BYTES
    got = notes(records)
    assert [claim.agenda_id for note in got for claim in note.claims] == names
    assert [end.agenda_id for note in got for end in note.settlements] == names
    first_end = next(n for n, note in enumerate(got) if note.settlements)
    assert not any(note.claims for note in got[first_end:])


async def test_an_end_with_monstrous_costs_frees_its_slot_all_the_same():
    costs = {f"{'t' * 190}{number}": 1.0 for number in range(3_000)}
    records = await relayed(encode(succeeded("a", **costs)), encode(succeeded("b", cut=1.0)))
    ends = [end for note in notes(records) for end in note.settlements]
    assert [(end.agenda_id, len(end.spent_s)) for end in ends] == [("a", 0), ("b", 1)]


async def test_a_broker_that_is_away_is_waited_for():
    publisher = MemoryPublisher(failures=[UnavailableError("away")])
    assert notes(await relayed(encode(claimed("a")), publisher=publisher))


# ---- signs of life, commands, stops, restarts ----


def of_attempt(kind, agenda_id, attempt=1, insight_id="media", **fields):
    return kind(agenda_id=agenda_id, at=START, insight_id=insight_id, attempt=attempt, **fields)


def renewed(agenda_id, attempt=1):
    return of_attempt(AgendaHeartbeat, agenda_id, attempt, puller_id="p", lease_ms=1_000)


def restarted(agenda_id, attempt=2, insight_id="media", **fields):
    body = encode(placed(agenda_id, attempt=attempt, **fields))
    return of_attempt(AgendaRestarted, agenda_id, attempt, insight_id, routed=Raw(body))


def test_many_heartbeats_of_an_attempt_are_relayed_once():
    progressed = of_attempt(AgendaProgressed, "a", operations=())
    [note] = translate([renewed("a"), progressed, renewed("b", 2), renewed("a")])
    assert note.heartbeats == (
        Claim(agenda_id="a", attempt=1),
        Claim(agenda_id="b", attempt=2),
    )


def test_a_claim_or_an_end_is_sign_of_life_enough():
    [note] = translate(
        [claimed("a"), renewed("a"), renewed("b"), succeeded("b"), renewed("b", 2)]
    )
    assert note.heartbeats == (Claim(agenda_id="b", attempt=2),)


def test_a_stop_is_an_end():
    stopped = of_attempt(AgendaStopped, "a", spent_s={"cut": 0.5})
    [note] = translate([stopped])
    end = Settlement(agenda_id="a", attempt=1, outcome="stopped", spent_s={"cut": 0.5})
    assert note.settlements == (end,)


def test_a_message_is_cut_to_what_the_scheduler_keeps():
    event = of_attempt(AgendaFailed, "a", message="m" * 5_000, retryable=False)
    [note] = translate([event])
    assert note.settlements[0].message == "m" * MAX_MESSAGE_LENGTH
    assert not note.settlements[0].retryable


async def test_commands_are_relayed_in_order_with_their_positions():
    def wanted(action, **fields):
        return AgendaCommanded(
            agenda_id="a", at=START, insight_id="media", action=action, **fields
        )

    hold, move = wanted("hold", by="ann"), wanted("reprioritise", priority=1, rank=2, attempt=3)
    [note] = notes(await relayed(encode([claimed("b"), hold]), encode(move)))
    assert note.commands == (
        Command(agenda_id="a", action="hold", by="ann", origin=place(0, 1)),
        Command(
            agenda_id="a",
            action="reprioritise",
            priority=1,
            rank=2,
            attempt=3,
            origin=place(1, 0),
        ),
    )


async def test_a_batch_relayed_again_repeats_no_command():
    """As after a crash of the relay, with a rerun in between."""
    cancel = AgendaCommanded(
        agenda_id="a", at=START, insight_id="media", action="cancel", attempt=1
    )
    one = backlog()
    one.place([placed("a")])
    await tell(one, cancel)
    assert one.position_of("a") is None
    await tell(one, cancel, restarted("a"))
    assert one.position_of("a").attempt == 2


async def test_every_kind_of_event_is_relayed_in_reports_that_fit():
    names = [f"agenda-{number:025d}" for number in range(6_000)]
    wanted = [
        AgendaCommanded(agenda_id=one, at=START, insight_id="media", action="cancel")
        for one in names
    ]
    records = await relayed(encode([*map(renewed, names), *wanted]))
    assert max(len(one.value) for one in records) <= FRAME_BYTES
    got = notes(records)
    assert [one.agenda_id for note in got for one in note.heartbeats] == names
    assert [one.agenda_id for note in got for one in note.commands] == names


async def test_a_restarted_agenda_is_placed_again_with_its_position():
    frame = encode([claimed("z"), restarted("a"), restarted("x", 3, "video")])
    records = await relayed(frame, encode(restarted("b")))
    note, media, video = notes(records)
    assert [decode_routed(one).agenda_id for one in media.agendas] == ["a", "b"]
    assert [(one.partition, one.offset, one.index) for one in media.origins] == [
        (-2, 0, 1),
        (-2, 1, 0),
    ]
    [again] = map(decode_routed, video.agendas)
    assert (video.insight_id, again.attempt) == ("video", 3)
    assert note.claims == (Claim(agenda_id="z", attempt=1),)


async def test_an_end_comes_before_its_restart_and_commands_after():
    """Else the scheduler would take the restart for a repeat of what it still holds."""
    hold = AgendaCommanded(agenda_id="a", at=START, insight_id="media", action="hold")
    got = notes(await relayed(encode([failed("a"), restarted("a", 3), hold])))
    assert [len(getattr(one, "settlements", ())) for one in got] == [1, 0, 0]
    assert [len(getattr(one, "agendas", ())) for one in got] == [0, 1, 0]
    assert [len(getattr(one, "commands", ())) for one in got] == [0, 0, 1]


async def test_many_restarts_are_relayed_in_pages_that_fit():
    values = [encode(restarted(f"a-{number}")) for number in range(PAGE_SLOTS + 1)]
    large = [encode(restarted(f"b-{n}", fairness_key="k" * 200_000)) for n in range(3)]
    got = notes(await relayed(*values, *large))
    assert [len(one.agendas) for one in got] == [PAGE_SLOTS, 2, 1, 1]
    names = [decode_routed(one).agenda_id for page in got for one in page.agendas]
    assert len(set(names)) == PAGE_SLOTS + 4


@pytest.mark.parametrize(
    "wrong",
    [
        of_attempt(AgendaRestarted, "a", 2, routed=Raw(b"7")),
        of_attempt(AgendaRestarted, "a", 2, routed=Raw(encode(placed("b", attempt=2)))),
        of_attempt(AgendaRestarted, "a", 2, routed=Raw(encode(placed("a", attempt=3)))),
    ],
)
async def test_a_restart_that_contradicts_itself_is_passed_over(wrong):
    [note] = notes(await relayed(encode(wrong), encode(claimed("c"))))
    assert note.claims == (Claim(agenda_id="c", attempt=1),)


async def test_commands_that_nobody_has_signed_are_passed_over_and_their_neighbours_are_not():
    publisher, signer = MemoryPublisher(), RecordSigner([b"s" * 32])
    settings = Settings(topic_prefix="t.", signing_secrets=("s" * 32,))
    relay = Relay(settings, publisher, FixedDefinitions(Definitions()), CLOCK)
    cancel = AgendaCommanded(agenda_id="a", at=START, insight_id="media", action="cancel")
    forged = encode([claimed("c"), cancel, restarted("b")])
    topic = record(b"").topic
    signed = encode([claimed("d"), cancel])
    await relay.handle(
        [
            record(forged, offset=0),
            record(forged, offset=1, headers=signer.headers(topic, key=b"k", value=signed)),
            record(signed, offset=2, headers=signer.headers(topic, key=None, value=signed)),
        ]
    )
    [note] = notes(publisher.records)
    assert [one.agenda_id for one in note.claims] == ["c", "c", "d"]
    assert [one.origin for one in note.commands] == [place(2, 1)]
