"""What an embedded broker is told: its place in a cluster, its settings, its log's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Node:
    """One broker's place in its cluster.

    Attributes:
        number: From 1.
        port: For clients and other brokers.
        controller: Port of the quorum.
    """

    number: int
    port: int
    controller: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers that belong together, and the id their data are formatted with."""

    id: str
    nodes: Sequence[Node]


def broker_properties(node: Node, cluster: Cluster) -> dict[str, str]:
    """All that a broker is told but for where its data lie."""
    listeners = f"CLIENT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller}"
    copies = str(min(3, len(cluster.nodes)))
    in_sync = "2" if len(cluster.nodes) > 2 else "1"  # noqa: PLR2004  # a majority of three
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.number),
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        **_quorum(cluster),
        # A dead broker's partitions move after this, and one that was killed is let in again;
        # Kafka's own 9 s suit machines far apart.
        "broker.session.timeout.ms": "3000",
        "auto.create.topics.enable": "false",
        # For a machine's own clients one thread reads their requests as well as three do; each
        # that has nothing to do wakes several times a second to find that out.
        "num.network.threads": "1",
        "num.io.threads": "2",
        "background.threads": "2",
        "group.coordinator.threads": "1",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # A new member of a share group is given partitions with its second heartbeat.
        "group.share.min.heartbeat.interval.ms": "1000",
        "group.share.heartbeat.interval.ms": "1000",
        # Else an idle controller writes and syncs a record twice a second.
        "metadata.max.idle.interval.ms": "10000",
        # The cleaner's map is allocated whole at start; 128 MB is a server's, not a laptop's.
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
    }


def _quorum(cluster: Cluster) -> dict[str, str]:
    if len(cluster.nodes) == 1:
        controller = cluster.nodes[0].controller
        return {
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "broker.heartbeat.interval.ms": "1000",
        }
    voters = (f"{one.number}@127.0.0.1:{one.controller}" for one in cluster.nodes)
    return {
        "controller.quorum.voters": ",".join(voters),
        "broker.heartbeat.interval.ms": "500",
    }


def log4j(stem: str) -> dict[str, str]:
    """Of its log: four files of 10 MB at most, whose names begin with `stem`."""
    return {
        "status": "error",
        "appender.file.type": "RollingFile",
        "appender.file.name": "file",
        "appender.file.fileName": f"{stem}.log",
        "appender.file.filePattern": f"{stem}.%i.log",
        "appender.file.layout.type": "PatternLayout",
        "appender.file.layout.pattern": "%d{yyyy-MM-dd'T'HH:mm:ss.SSSX}{UTC} %p %c{1} %m%n",
        "appender.file.policies.type": "Policies",
        "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
        "appender.file.policies.size.size": "10MB",
        "appender.file.strategy.type": "DefaultRolloverStrategy",
        "appender.file.strategy.max": "3",
        # Every setting at every start, and a line for every partition, would bury the rest.
        "logger.settings.name": "org.apache.kafka.common.config",
        "logger.settings.level": "warn",
        "logger.partitions.name": "state.change.logger",
        "logger.partitions.level": "warn",
        "rootLogger.level": "info",
        "rootLogger.appenderRef.file.ref": "file",
    }


def write(path: Path, properties: dict[str, str]) -> None:
    """As a properties file of Java's; values must be of Latin-1 and one line."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
