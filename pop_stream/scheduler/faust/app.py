"""The Faust application: its settings, its bounded queues, and a recovery that reads nothing.

Of Faust the scheduler uses membership of the group, the assignment of partitions, the agent's
stream and the commits. It switches off what it does itself: reading the table's changelog,
creating topics, the web server.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import faust
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from mode.utils.queues import ThrowableQueue

from pop_stream.kafka import clients, group_members
from pop_stream.kafka.hardening import broker_timeouts
from pop_stream.scheduler.faust.transport import HardenedTransport
from pop_stream.scheduler.round_writer import PART
from pop_stream.settings import Settings

MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of values that were read and wait for the agent. Faust bounds its queues by
records alone, and a record of `pop.ready` may have 100 bytes or nearly a megabyte."""

_BUFFERED_RECORDS: Final = 4_096
"""Most records that wait for the agent."""

_MIN_REBALANCE_S: Final = 10.0
"""Shortest time that the group waits for its members to join."""


class ByteBoundedQueue(ThrowableQueue):  # type: ignore[misc]  # Faust is untyped
    """A queue that is full by its records or by their bytes, whichever comes first.

    Its size is in records; large ones count as several. Faust stops fetching for a partition
    at four fifths of the size and resumes at two fifths.
    """

    queued_bytes: int = 0

    def qsize(self) -> int:
        """Called by Faust, which compares it with `maxsize`."""
        bytes_per_record: int = max(1, MAX_QUEUED_BYTES // self.maxsize)
        return max(len(self._queue), self.queued_bytes // bytes_per_record)

    def clear(self) -> None:
        """Called by Faust when partitions are revoked."""
        super().clear()
        self.queued_bytes = 0

    def _put(self, item: Any) -> None:  # noqa: ANN401  # Faust is untyped
        self.queued_bytes += _size(item)
        super()._put(item)

    def _get(self) -> Any:  # noqa: ANN401  # Faust is untyped
        item = super()._get()
        self.queued_bytes -= _size(item)
        return item


def _size(event: Any) -> int:  # noqa: ANN401  # Faust is untyped
    return len(event.message.value or b"")


class ByteBoundedApp(faust.App):  # type: ignore[misc]  # Faust is untyped
    """An application whose streams wait in queues bounded by bytes."""

    def FlowControlQueue(  # noqa: N802  # the name is Faust's
        self, maxsize: int | None = None, *, clear_on_resume: bool = False
    ) -> ByteBoundedQueue:
        """Called by Faust for every stream."""
        return ByteBoundedQueue(
            maxsize=maxsize, flow_control=self.flow_control, clear_on_resume=clear_on_resume
        )


class _NoRecovery(Recovery):  # type: ignore[misc]  # Faust is untyped
    """Reads nothing of the changelog, which `FaustReadyTable.recover` reads.

    Faust reads it a record at a time, and what ends its reading is an event that the same loop
    clears again: whoever does not wait for it yet waits for ever.
    """

    def need_recovery(self) -> bool:
        """Called by Faust after each rebalance."""
        return False

    async def _build_highwaters(self, *_: Any) -> None:  # noqa: ANN401
        """Called by Faust; needed for its own reading only."""

    async def _build_offsets(self, *_: Any) -> None:  # noqa: ANN401
        """Called by Faust; needed for its own reading only."""

    async def _seek_offsets(self, *_: Any) -> None:  # noqa: ANN401
        """Called by Faust; needed for its own reading only."""


class _TableManagerWithoutRecovery(TableManager):  # type: ignore[misc]  # Faust is untyped
    _recovery: Recovery | None = None

    @property
    def recovery(self) -> Recovery:
        """Made when Faust first asks for it."""
        if self._recovery is None:
            self._recovery = _NoRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        """Called by Faust, whose own method first sleeps for a second."""
        await self._update_channels()
        await self.recovery.start()


def faust_app(
    settings: Settings,
    *,
    on_heartbeat: Callable[[float], None] = lambda _: None,
    on_expelled: Callable[[], None] = lambda: None,
) -> Any:  # noqa: ANN401  # Faust is untyped
    """Make an application without agents or tables, whose topics exist already.

    Args:
        settings: Connection, timeouts and names.
        on_heartbeat: See `HardenedTransport`.
        on_expelled: See `HardenedTransport`.
    """
    part = f"{settings.topic_prefix}{PART}"
    app = ByteBoundedApp(
        part,
        store="memory://",
        datadir=str(settings.scheduler_data),
        autodiscover=False,
        web_enabled=False,
        # The changelog of a table is read back with the serializers of the application.
        key_serializer="raw",
        value_serializer="raw",
        stream_buffer_maxsize=_BUFFERED_RECORDS,
        table_standby_replicas=0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        TableManager=_TableManagerWithoutRecovery,
        **_broker_settings(settings, part),
    )
    app.transport = HardenedTransport(app.conf.broker_consumer, app)
    app.transport.evict_own_predecessor = partial(
        clients.evict_own_predecessor, settings, app.conf.id, app.conf.broker_client_id
    )
    app.transport.skip_silent_brokers = partial(
        broker_timeouts.install_broker_timeouts, connection=clients.connection(settings)
    )
    app.transport.on_heartbeat = on_heartbeat
    app.transport.on_expelled = on_expelled
    return app


def _broker_settings(settings: Settings, part: str) -> dict[str, Any]:
    """How the application reaches the brokers, and how long each side waits for the other."""
    session_s = settings.session_timeout.total_seconds()
    brokers = settings.kafka_bootstrap.split(",")
    return {
        "broker": ";".join(f"aiokafka://{one}" for one in brokers),
        "broker_credentials": _credentials(settings),
        "broker_client_id": group_members.member_client_id(settings, part),
        "broker_session_timeout": session_s,
        "broker_heartbeat_interval": session_s / 3,
        # A member that sends heartbeats and does not join delays all others for so long.
        "broker_rebalance_timeout": max(2 * session_s, _MIN_REBALANCE_S),
        "broker_commit_interval": 1.0,
        "consumer_metadata_max_age_ms": clients.METADATA_AGE_MS,
    }


def _credentials(settings: Settings) -> Any:  # noqa: ANN401  # Faust is untyped
    """The connection's security in Faust's own form; None for a plain connection."""
    if settings.kafka_security_protocol == "PLAINTEXT":
        return None
    context = None
    if settings.kafka_security_protocol.endswith("SSL"):
        ca_file = settings.kafka_ca_file
        context = faust.auth.ssl.create_default_context(
            cafile=str(ca_file) if ca_file else None
        )
    if not settings.kafka_security_protocol.startswith("SASL"):
        return faust.SSLCredentials(context)
    password = settings.kafka_password
    return faust.SASLCredentials(
        username=settings.kafka_username,
        password=password.get_secret_value() if password else None,
        mechanism=settings.kafka_sasl_mechanism,
        ssl_context=context,
    )
