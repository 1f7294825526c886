"""Definitions as they are read from their topic: what a start costs, what a batch leaves."""

import pytest
from consumer_records import record

from pop_stream.kafka.definitions import DEFINITION_VERSION_HEADER, DefinitionFollower
from pop_stream.model.definitions import Definitions
from pop_stream.settings import Settings

DEFINED = 2_000
BATCH = 500


def definition(number, *, kind="template", value=b'{"id":"%d","agenda":{}}', version=1):
    return record(
        value and value % number if value and b"%" in value else value,
        key=b"%b/%d" % (kind.encode(), number),
        offset=number,
        topic="t.definitions",
        headers=[(DEFINITION_VERSION_HEADER, b"%d" % version)],
    )


@pytest.fixture
def follower(monkeypatch):
    monkeypatch.setattr("pop_stream.kafka.definitions.clients.consumer", lambda *_, **__: None)
    return DefinitionFollower(Settings(), client_id="test")


async def test_work_of_a_start_grows_with_batches_and_not_with_definitions(
    follower, monkeypatch
):
    snapshots = []
    made = Definitions.with_changes

    def counted(known, changes):
        snapshots.append(made(known, changes))
        return snapshots[-1]

    monkeypatch.setattr(Definitions, "with_changes", counted)
    for first in range(0, DEFINED, BATCH):
        follower._apply([definition(one) for one in range(first, first + BATCH)])
    assert len(follower.current.templates) == DEFINED
    assert follower.current.version == DEFINED
    assert len(snapshots) == DEFINED // BATCH


async def test_of_a_batch_the_unreadable_and_the_repeated_change_nothing(follower):
    follower._apply(
        [
            definition(1, version=2),
            definition(2, value=b"no JSON"),
            definition(3, kind="unheard-of"),
            definition(1, value=None, version=1),
        ]
    )
    assert follower.read_up_to == 2
    assert [*follower.current.templates] == ["1"]
    assert follower.current.version == 2
    before = follower.current
    follower._apply([definition(9, value=b"no JSON")])
    assert follower.current is before
