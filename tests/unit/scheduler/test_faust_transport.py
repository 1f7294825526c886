"""What Faust's client asks brokers for."""

from types import SimpleNamespace

from aiokafka import TopicPartition

from pop_stream.kafka import clients
from pop_stream.scheduler.faust.app import faust_app
from pop_stream.scheduler.faust.client_internals import restrict_fetches
from pop_stream.scheduler.faust.transport import HardenedTransport
from pop_stream.settings import Settings

READY, CHANGELOG = TopicPartition("ready", 0), TopicPartition("changelog", 0)


class Fetcher:
    def _get_actions_per_node(self, assignment):
        return {tp: assignment.state_value(tp) for tp in assignment.tps}


def test_partitions_that_nobody_reads_there_are_not_asked_for():
    fetcher = Fetcher()
    restrict_fetches(fetcher, lambda tp: tp.topic == "ready")
    states = {READY: "at 7", CHANGELOG: "at 9"}
    assigned = SimpleNamespace(tps=frozenset(states), state_value=states.get)
    assert fetcher._get_actions_per_node(assigned) == {READY: "at 7"}


def transport(assignment):
    """Faust's transport, following a client that was assigned so much."""
    made = HardenedTransport.__new__(HardenedTransport)
    subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
    made.track_coordinator(SimpleNamespace(_subscription=subscription))
    return made


def test_the_end_of_a_partition_is_known_once_it_was_fetched():
    states = {READY: SimpleNamespace(highwater=7)}
    known = transport(SimpleNamespace(state_value=states.get))
    assert (known.end_offset("ready", 0), known.end_offset("ready", 1)) == (7, None)


def test_without_an_assignment_no_end_is_known():
    assert transport(None).end_offset("ready", 0) is None
    assert HardenedTransport.__new__(HardenedTransport).end_offset("ready", 0) is None


def test_faust_looks_for_topics_as_often_as_all_others():
    """Else a scheduler whose topic was made anew would have nothing to do for minutes."""
    settings = Settings()
    age_ms = clients.connection(settings)["metadata_max_age_ms"]
    assert faust_app(settings).conf.consumer_metadata_max_age_ms == age_ms
