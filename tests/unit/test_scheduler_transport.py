"""What Faust's client asks brokers for."""

from types import SimpleNamespace

from aiokafka import TopicPartition

from pop_stream.scheduler.transport import fetch_no_other

READY, CHANGELOG = TopicPartition("ready", 0), TopicPartition("changelog", 0)


class Fetcher:
    def _get_actions_per_node(self, assignment):
        return {tp: assignment.state_value(tp) for tp in assignment.tps}


def test_partitions_that_nobody_reads_there_are_not_asked_for():
    fetcher = Fetcher()
    fetch_no_other(fetcher, lambda tp: tp.topic == "ready")
    states = {READY: "at 7", CHANGELOG: "at 9"}
    assigned = SimpleNamespace(tps=frozenset(states), state_value=states.get)
    assert fetcher._get_actions_per_node(assigned) == {READY: "at 7"}
