"""A real Kafka broker, combined with its controller: alone, or one of a few, on one machine."""

import asyncio
import shutil
import signal
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

import structlog
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import KafkaError

from pop_stream.embedded.errors import ServerStartError
from pop_stream.embedded.folder import DataFolder
from pop_stream.embedded.jvm import LOG4J_FILE, Jvm
from pop_stream.embedded.process import Launch, ServerProcess, end_leftovers, run_to_end
from pop_stream.embedded.properties import Cluster, Node, broker_properties, log4j, write

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
        class_cache_target: Where its orderly end leaves a cache of the classes that it loaded; that takes
            some seconds more.

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
        """Wait until the broker ends by itself, and tell what its log says."""
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
        # aiokafka logs errors while nothing listens; a bare connection is silent.
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        await writer.wait_closed()
    except OSError:
        return False
    client = AIOKafkaClient(bootstrap_servers=bootstrap, request_timeout_ms=2_000)
    try:
        await client.bootstrap()
        if client.get_random_node() is None:
            return False  # it answers before it knows of any broker
        await client.coordinator_lookup(CoordinationType.GROUP, "pop-stream-embedded")
    except (KafkaError, OSError):
        return False
    finally:
        await client.close()
    return True
