"""What becomes of submissions: accepted, refused, or dead-lettered; never lost, never fatal."""

import base64
import json

import msgspec
import pytest
from backlogs import START
from consumer_records import record
from submission_processors import DEFINITIONS, SORTER, TOPICS

from pop_stream.ingest.submission_processor import SubmissionProcessor
from pop_stream.model.events.codec import MAX_EVENT_BYTES, decode_routed, encode
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaRefused
from pop_stream.model.events.scheduling import Origin, RecordRefused
from pop_stream.policy.ingress.cloud_events import event_agenda_id

MAX_RECORD_BYTES = 990_000
"""What the producer takes, less what goes round key and value."""


def sort(*records):
    return SORTER.process(records, now=START)


def agenda(agenda_id=None, kind="cut", **fields):
    known = {"customer_id": "acme", "operations": [{"name": "only", "type": kind}]} | fields
    return known if agenda_id is None else {"id": agenda_id, **known}


def of(document, **coordinates):
    return record(json.dumps(document).encode(), **coordinates)


def letters(result):
    return [msgspec.json.decode(one.value, type=RecordRefused) for one in result.dead_letters]


def ids(result, insight_id="media"):
    return [decode_routed(one.body).agenda_id for one in result.routed.get(insight_id, ())]


def test_a_good_agenda_is_accepted_and_placed():
    result = sort(of(agenda("a1", priority=2, cost_s=0.5, rank=3, fairness_key="k"), offset=7))
    [accepted] = result.lifecycle
    assert isinstance(accepted, AgendaAccepted)
    assert (accepted.agenda_id, accepted.insight_id, accepted.customer_id) == (
        "a1",
        "media",
        "acme",
    )
    assert (accepted.at, accepted.operations) == (START, ("only",))
    [one] = result.routed["media"]
    assert one.origin == Origin(partition=0, offset=7, index=0)
    placed = decode_routed(one.body)
    assert (placed.priority, placed.rank, placed.fairness_key) == (2, 3, "k")
    assert (placed.cost_s, placed.operation_types) == (0.5, ("cut",))
    assert bytes(placed.agenda) == bytes(accepted.agenda)
    assert result.dead_letters == []


def test_pullers_do_not_learn_where_the_customer_is_called_back():
    url = "https://acme.example/hook?token=5ecret"
    result = sort(of(agenda("a1", callback_url=url, title="5ecret's title"), offset=7))
    [accepted], [one] = result.lifecycle, result.routed["media"]
    assert accepted.callback_url == url
    assert json.loads(bytes(accepted.agenda))["callback_url"] == url
    placed = json.loads(bytes(decode_routed(one.body).agenda))
    assert placed == agenda("a1", title="5ecret's title")


def test_a_list_is_taken_apart_and_keeps_its_places():
    result = sort(of([agenda("a"), agenda("b", "film"), agenda("c")], offset=3, partition=2))
    assert ids(result) == ["a", "c"]
    assert [one.origin.index for one in result.routed["media"]] == [0, 2]
    assert ids(result, "video") == ["b"]


def test_bad_ones_in_a_list_do_not_hurt_the_good_ones_beside_them():
    result = sort(of([agenda("a"), agenda("bad", "unknown"), 7, agenda("c"), {}], offset=4))
    assert ids(result) == ["a", "c"]
    [letter] = letters(result)
    assert (letter.code, letter.part, letter.offset) == ("submission_refused", "ingest", 4)
    assert letter.reason.startswith("3 of 5 agendas refused: ")
    fields = [issue.field for issue in letter.issues]
    assert fields[:2] == ["[1].operations", "[2].agenda"]
    [refused] = [one for one in result.lifecycle if isinstance(one, AgendaRefused)]
    assert (refused.agenda_id, refused.customer_id) == ("bad", "acme")


def test_a_refusal_says_what_is_wrong_and_keeps_the_record():
    bad = agenda("bad", priority=77)
    result = sort(of(bad, key=b"k"))
    [letter] = letters(result)
    assert letter.issues[0].field == "priority"
    assert "priority = 77" in letter.reason
    assert json.loads(base64.b64decode(letter.value_base64)) == bad
    assert result.dead_letters[0].key == b"k"
    assert result.routed == {}


@pytest.mark.parametrize("value", [None, b"", b"  ", b"7", b'"x"', b"\xff\xfe", b"null", b"{"])
def test_what_is_no_agenda_is_dead_lettered(value):
    result = sort(record(value))
    [letter] = letters(result)
    assert letter.code in {"unreadable_record", "submission_refused"}
    assert result.routed == {}


@pytest.mark.parametrize("value", [b"[", b"[1", b"[NaN]", b"[" * 100_000])
def test_a_list_that_cannot_be_read_is_dead_lettered_whole(value):
    [letter] = letters(sort(record(value)))
    assert letter.code == "unreadable_record"


def test_whitespace_before_an_agenda_is_no_fault():
    assert ids(sort(record(b" \r\n\t" + json.dumps(agenda("a")).encode()))) == ["a"]


# ---- identity ----


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"k1", "k1"), (None, "3-9-0"), (b"no id", "3-9-0"), (b"\xff", "3-9-0"), (b"", "3-9-0")],
)
def test_without_an_id_the_key_counts_else_the_coordinates(key, expected):
    assert ids(sort(of(agenda(), key=key, offset=9, partition=3))) == [expected]


def test_an_id_of_its_own_wins_over_the_key():
    assert ids(sort(of(agenda("own"), key=b"k1"))) == ["own"]


def test_in_a_list_the_key_names_the_first_only():
    assert ids(sort(of([agenda(), agenda()], key=b"k1", offset=9))) == ["k1", "0-9-1"]


def test_a_second_reading_gives_the_same():
    records = [of([agenda(), agenda("x"), {}], key=b"k", offset=1), of(agenda(), offset=2)]
    first, second = sort(*records), sort(*records)
    assert first.routed == second.routed
    assert first.lifecycle == second.lifecycle


def test_a_refusal_is_reported_under_the_key_of_a_lone_agenda():
    [refused] = sort(of({"customer_id": "acme"}, key=b"k1")).lifecycle
    assert (refused.agenda_id, refused.customer_id) == ("k1", "acme")


def test_a_refusal_in_a_list_is_not_reported_under_the_key_of_another():
    result = sort(of([agenda(), {"customer_id": "acme"}], key=b"k1"))
    assert [type(one) for one in result.lifecycle] == [AgendaAccepted]


@pytest.mark.parametrize("body", [b"{", b'{"id":5}', b'{"id":"a b"}', b'{"id":"x","id":[]}'])
def test_a_refusal_without_any_id_has_no_event(body):
    result = sort(record(body))
    assert result.lifecycle == []
    assert len(result.dead_letters) == 1


def test_an_impossible_customer_is_not_repeated_in_the_event():
    [refused] = sort(of({"id": "a", "customer_id": "x" * 5_000})).lifecycle
    assert refused.customer_id is None


# ---- sizes: nothing that comes in may make a record that cannot go out ----


FACES = "\N{GRINNING FACE}" * 196
TWISTED = {
    "a long key": b'{"%s":1}' % (b"k" * 400_000),
    "many long keys": b"{%s}"
    % b",".join(b'"%s%d":1' % (b"k" * 20_000, number) for number in range(20)),
    "a long value": json.dumps({"id": "a", "customer_id": "c" * 500_000}).encode(),
    "beyond the limit": json.dumps(agenda("a", params={"p": "x" * 1_500_000})).encode(),
    "names that events repeat": json.dumps(
        agenda(operations=[{"name": f"{FACES}{n:04d}", "type": "cut"} for n in range(630)]),
        ensure_ascii=False,
    ).encode(),
    "types that events repeat": json.dumps(
        agenda(
            operations=[{"name": "n", "type": "cut"}]
            + [{"name": f"n{n}", "type": f"{FACES}{n:04d}"} for n in range(600)]
        ),
        ensure_ascii=False,
    ).encode(),
    "numbers that grow": json.dumps(agenda(params={"p": "PLACE"}))
    .encode()
    .replace(b'"PLACE"', b"[%s]" % b",".join([b"1e15"] * 100_000)),
    "control characters": json.dumps(
        agenda(
            operations=[
                {"name": "\x01" * 190 + f"{n:04d}", "type": "x", "depends_on": ["\x01" * 199]}
                for n in range(200)
            ]
        )
    ).encode(),
    "a list of nothings": b"[" + b"0," * 3_000 + b"0]",
    "a list beyond all": b"[" + b"0," * 400_000 + b"0]",
    "a list of refusals": json.dumps([{"id": f"a{n}"} for n in range(3_000)]).encode(),
    "no text": b"\xff" * 900_000,
}


@pytest.mark.parametrize("value", TWISTED.values(), ids=TWISTED)
@pytest.mark.parametrize("key", [None, b"k" * 500_000], ids=["no key", "a long key"])
def test_whatever_comes_in_all_that_comes_of_it_fits_records(value, key):
    result = sort(record(value, key=key))
    for one in result.dead_letters:
        assert len(one.value) + len(one.key or b"") < MAX_RECORD_BYTES
    for event in result.lifecycle:
        assert len(encode(event)) <= MAX_EVENT_BYTES
    for pages in result.routed.values():
        assert all(len(one.body) <= MAX_EVENT_BYTES for one in pages)
    assert len(result.dead_letters) <= 1
    assert result.dead_letters or result.routed


def test_an_agenda_that_grows_when_it_is_written_out_is_refused_with_a_remedy():
    result = sort(record(TWISTED["numbers that grow"]))
    assert "store large inputs and refer to them" in letters(result)[0].reason


def test_an_agenda_that_outgrows_its_events_is_refused_with_a_remedy():
    names = [f"{number:04d}".ljust(199, "n") for number in range(2_200)]
    operations = [{"name": name, "type": "cut"} for name in names]
    processor = SubmissionProcessor(TOPICS, DEFINITIONS, max_agenda_bytes=900_000)
    result = processor.process([of(agenda("a", operations=operations))], now=START)
    assert "split it in several" in letters(result)[0].reason


def test_a_large_agenda_that_fits_is_taken():
    assert ids(sort(of(agenda("a", params={"p": "x" * 500_000})))) == ["a"]


def test_an_agenda_beyond_the_limit_is_refused_unread():
    result = sort(of(agenda("a", params={"p": "x" * 530_000})))
    assert "larger than the 524288 bytes allowed" in letters(result)[0].reason
    assert letters(result)[0].truncated


def test_a_list_is_as_large_as_its_record():
    many = [agenda(f"a{number}") for number in range(2_000)]
    assert ids(sort(of(many))) == [one["id"] for one in many]


def test_a_list_that_would_take_all_day_is_dead_lettered():
    [letter] = letters(sort(record(TWISTED["a list beyond all"])))
    assert letter.reason == "a list of 400001; at most 10000 agendas fit one record"


def test_what_only_lacks_a_definition_can_be_submitted_again():
    """A sound agenda that fits nothing keeps its body, and an id even if it has none."""
    anonymous = {"customer_id": "acme", "operations": [{"name": "a", "type": "unheard"}]}
    run = {"id": "r1", "template_id": "none"}
    sorted_ = sort(of([anonymous, run, {"id": "bad"}], offset=3))
    got = {event.agenda_id: event for event in sorted_.lifecycle}
    assert json.loads(bytes(got["r1"].agenda)) == run
    assert got["bad"].agenda is msgspec.UNSET
    [made] = got.keys() - {"r1", "bad"}
    assert json.loads(bytes(got[made].agenda)) == anonymous
    assert "template" in got["r1"].issues[0].field


# ---- CloudEvents ----

EVENT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.placed"}
BINARY = [(f"ce_{name}", text.encode()) for name, text in EVENT.items()]
STRUCTURED = [("content-type", b"application/cloudevents+json")]
EVENT_ID = event_agenda_id("/shop", "e-1", "acme")


def test_an_event_is_one_agenda_wherever_its_record_stands():
    whole = {**EVENT, "data": agenda()}
    first = sort(of(whole, headers=STRUCTURED, key=b"some-partition"))
    again = sort(of(agenda(), headers=BINARY, offset=7, partition=2, key=b"another"))
    assert ids(first) == ids(again) == [EVENT_ID]


def test_a_bad_event_is_dead_lettered_for_its_attribute():
    result = sort(of({**EVENT, "source": "", "data": agenda()}, headers=STRUCTURED))
    [letter] = letters(result)
    assert letter.code == "submission_refused"
    assert letter.issues[0].field == "source"
    assert not result.lifecycle


@pytest.mark.parametrize("header", ["pop-signature", "pop-admitted"])
def test_what_the_api_has_written_is_no_event_whatever_headers_were_added(header):
    added = [*BINARY, ("ce_poptemplate", b"scan"), (header, b"1")]
    result = sort(of(agenda("a1"), headers=added))
    assert ids(result) == ["a1"]


def test_an_event_whose_agenda_is_refused_says_why_under_its_id():
    whole = {**EVENT, "data": {**agenda(), "priority": 12}}
    [event] = sort(of(whole, headers=STRUCTURED)).lifecycle
    assert (event.agenda_id, event.issues[0].field) == (EVENT_ID, "priority")
