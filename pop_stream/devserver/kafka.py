"""One real Kafka broker combined with its controller: alone, or one of a few on one machine.

Its settings are for a machine that has other things to do: few threads, short timeouts, no
automatic topics. Three brokers replicate to each other and need two of them.
"""

import asyncio
import shutil
import signal
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from pop_stream.devserver.errors import ServerStartError
from pop_stream.devserver.folder import DataFolder
from pop_stream.devserver.jvm import LOG4J_FILE, Jvm
from pop_stream.devserver.process import Launch, ServerProcess, end_leftovers, run_to_end
from pop_stream.kafka import clients


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
    """All settings of a broker but for where its data lie."""
    listeners = f"CLIENT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller}"
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
        **_threads(),
        **_replication(cluster),
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


def _threads() -> dict[str, str]:
    return {
        # For a machine's own clients one thread reads their requests as well as three do; each
        # that has nothing to do wakes several times a second to find that out.
        "num.network.threads": "1",
        "num.io.threads": "2",
        "background.threads": "2",
        "group.coordinator.threads": "1",
    }


def _replication(cluster: Cluster) -> dict[str, str]:
    copies = str(min(3, len(cluster.nodes)))
    in_sync = "2" if len(cluster.nodes) > 2 else "1"  # noqa: PLR2004  # a majority of three
    return {
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
    """Settings of the log: four files of 10 MB at most, whose names begin with `stem`."""
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
        # Every setting at every start, and a line for every partition, would hide the rest.
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


_FORMAT_LIMIT_S = 60.0
_START_LIMIT_S = 60.0
_RETRY_S = 0.05
_GRACE_S = 20.0
_CLASS_CACHE_GRACE_S = 60.0
_log = structlog.get_logger(__name__)


def plan_cluster(folder: DataFolder, brokers: int) -> Cluster:
    """Ports for so many brokers, the remembered ones while they are free.

    Call as the owner, before any of them runs. What an earlier owner left running is ended
    first, for it holds the ports; that blocks for seconds at most.
    """
    for number in range(1, brokers + 1):
        home = _home(folder, number, brokers)
        end_leftovers(home, _name(number), signal.SIGTERM)
    nodes = [
        Node(one, folder.port(f"kafka-{one}"), folder.port(f"kafka-{one}-controller"))
        for one in range(1, brokers + 1)
    ]
    known = folder.kafka / "cluster-id"
    if not known.exists():
        known.write_text(urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
    return Cluster(known.read_text(), nodes)


def _home(folder: DataFolder, number: int, brokers: int) -> Path:
    return folder.kafka if brokers == 1 else folder.kafka / f"node-{number}"


def _name(number: int) -> str:
    return f"kafka-{number}"


class Kafka:
    """A broker of `cluster`, its data below `folder.kafka`.

    It may be started again after it ended.

    The port is kept over restarts while it is free. Records survive a kill of the process;
    after a loss of power the last ones may be gone, since Kafka leaves syncing to replicas.

    Args:
        folder: Entered.
        jvm: What runs it.
        cluster: Of which it is one.
        node: Which.
        class_cache_target: Where its orderly end leaves a cache of the classes that it loaded;
            that takes some seconds more.

    Attributes:
        bootstrap: `host:port` for clients, once started.
    """

    def __init__(
        self,
        folder: DataFolder,
        jvm: Jvm,
        *,
        cluster: Cluster,
        node: Node,
        class_cache_target: Path | None = None,
    ) -> None:
        self.bootstrap = ""
        self._cluster = cluster
        self._node = node
        self._node_id = node_id = node.number
        self._home = home = _home(folder, node_id, len(cluster.nodes))
        self._data = home / f"data-{node_id}"
        self._unfinished_data = home / f"format-{node_id}"
        self._properties = home / f"server-{node_id}.properties"
        self._format_properties = home / f"format-{node_id}.properties"
        self._log_file = home / "logs" / f"server-{node_id}.log"
        self._jvm = jvm
        runs = jvm if class_cache_target is None else jvm.recording_classes(class_cache_target)
        command = runs.command("kafka.Kafka", self._properties.name)
        grace_s = _GRACE_S if class_cache_target is None else _CLASS_CACHE_GRACE_S
        self._launch = Launch(_name(node_id), command, home, grace_s=grace_s)
        self._process = ServerProcess(self._launch)

    @property
    def pid(self) -> int | None:
        """The broker's process, None before it was started."""
        return self._process.pid

    async def start(self) -> None:
        """Format the data folder if it is new, start, and wait until clients are served.

        Served means: metadata are answered and a group finds its coordinator.

        Raises:
            ServerStartError: If the broker ends or does not accept within a minute.
        """
        launch = self._launch
        self._home.mkdir(exist_ok=True)
        await asyncio.to_thread(end_leftovers, self._home, launch.name, launch.stop_signal)
        self._process = ServerProcess(launch)
        self._configure()
        await self._format()
        self._process.spawn()
        try:
            await self._process.record_pid()
            await self._until_accepting()
        except BaseException:
            await self.stop()
            raise
        _log.info("kafka.started", bootstrap=self.bootstrap, pid=self.pid)

    def request_stop(self) -> None:
        """Ask for an orderly end without waiting for it."""
        self._process.request_stop()

    async def stop(self) -> None:
        """End in order, killed after a grace; harmless if it never started."""
        was_running = self._process.is_running
        await self._process.stop()
        if was_running:
            _log.info("kafka.stopped")

    async def ended(self) -> ServerStartError:
        """Wait until the broker ends by itself, and return what its log says."""
        code = await self._process.ended()
        return self._process.start_error(f"it ended with exit code {code}", log=self._log_file)

    def _configure(self) -> None:
        self.bootstrap = f"127.0.0.1:{self._node.port}"
        properties = broker_properties(self._node, self._cluster)
        # Relative to the working directory: a comma or a letter beyond Latin-1 in the folder's
        # own path would not survive a properties file.
        write(self._properties, properties | {"log.dirs": self._data.name})
        write(self._format_properties, properties | {"log.dirs": self._unfinished_data.name})
        write(self._home / LOG4J_FILE, log4j(f"logs/{self._log_file.stem}"))
        self._log_file.parent.mkdir(exist_ok=True)

    async def _format(self) -> None:
        if self._data.exists():
            return
        # Formatted aside and renamed: a format cut short never looks like a formatted folder.
        shutil.rmtree(self._unfinished_data, ignore_errors=True)
        alone = ("--standalone",) if len(self._cluster.nodes) == 1 else ()
        arguments = ("format", *alone, f"--cluster-id={self._cluster.id}", "--config")
        command = self._jvm.command(
            "kafka.tools.StorageTool", *arguments, self._format_properties.name
        )
        launch = Launch("kafka-format", command, self._home)
        await run_to_end(launch, limit_s=_FORMAT_LIMIT_S)
        self._unfinished_data.rename(self._data)

    async def _until_accepting(self) -> None:
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                while not await _is_serving(self.bootstrap):
                    if not self._process.is_running:
                        raise await self.ended()
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError as error:
            reason = f"no answer at {self.bootstrap} within {_START_LIMIT_S:.0f} s"
            raise self._process.start_error(reason, log=self._log_file) from error


async def _is_serving(bootstrap: str) -> bool:
    host, port = bootstrap.split(":")
    try:
        # The client logs errors while nothing listens; a bare connection is silent.
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        await writer.wait_closed()
    except OSError:
        return False
    return await clients.is_serving(bootstrap)
