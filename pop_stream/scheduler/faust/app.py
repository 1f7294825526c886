"""The Faust application's settings: what of Faust is used, and how it reaches the cluster.

A queue of Faust's that is full by its records or by their bytes, whichever comes first.
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
from pop_stream.scheduler.record_builders import PART
from pop_stream.settings import Settings

MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
"""Of values that were read and wait for the agent. Faust counts records, and one of ours may be
of 100 bytes or of nearly a megabyte: as many as it takes of the small ones would be 4 GB."""


class ByteBoundedQueue(ThrowableQueue):  # type: ignore[misc]  # Faust is untyped
    """Its size is in records; larger ones count as several.

    Faust stops to fetch for a partition at four fifths of the size, and begins again at two.
    """

    queued_bytes: int = 0

    def qsize(self) -> int:
        """Called by Faust, which compares it with `maxsize`."""
        of_one: int = max(1, MAX_QUEUED_BYTES // self.maxsize)
        return max(len(self._queue), self.queued_bytes // of_one)

    def clear(self) -> None:
        """Called by Faust when partitions are revoked."""
        super().clear()
        self.queued_bytes = 0

    def _put(self, item: Any) -> None:  # noqa: ANN401  # Faust is untyped
        self.queued_bytes += _size(item)
        super()._put(item)

    def _get(self) -> Any:  # noqa: ANN401
        item = super()._get()
        self.queued_bytes -= _size(item)
        return item


class ByteBoundedApp(faust.App):  # type: ignore[misc]  # Faust is untyped
    """An application whose streams wait in such queues."""

    def FlowControlQueue(  # noqa: N802  # the name is Faust's
        self, maxsize: int | None = None, *, clear_on_resume: bool = False
    ) -> ByteBoundedQueue:
        """Called by Faust for every stream."""
        return ByteBoundedQueue(
            maxsize=maxsize, flow_control=self.flow_control, clear_on_resume=clear_on_resume
        )


def _size(event: Any) -> int:  # noqa: ANN401  # Faust is untyped
    return len(event.message.value or b"")


_BUFFERED_RECORDS: Final = 4_096
_MIN_REBALANCE_S: Final = 10.0


class _NoRecovery(Recovery):  # type: ignore[misc]  # Faust is untyped
    """Nothing is read by Faust: see `FaustReadyTable.recover`. All three are called by it."""

    def need_recovery(self) -> bool:
        return False

    async def _build_highwaters(self, *_: Any) -> None:  # noqa: ANN401
        pass

    async def _build_offsets(self, *_: Any) -> None:  # noqa: ANN401
        pass

    async def _seek_offsets(self, *_: Any) -> None:  # noqa: ANN401
        pass


class _TableManagerWithoutRecovery(TableManager):  # type: ignore[misc]  # Faust is untyped
    _recovery: Recovery | None = None

    @property
    def recovery(self) -> Recovery:
        """Made when Faust first asks for it."""
        if self._recovery is None:
            self._recovery = _NoRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        """Called by Faust, which would first sleep for a second, and all partitions with it."""
        await self._update_channels()
        await self.recovery.start()


def faust_app(
    settings: Settings,
    *,
    on_heartbeat: Callable[[float], None] = lambda _: None,
    on_expelled: Callable[[], None] = lambda: None,
) -> Any:  # noqa: ANN401  # Faust is untyped
    """An application without agents or tables, whose topics exist already.

    Args:
        settings: Where the cluster is, and how patient to be.
        on_heartbeat: See `HardenedTransport`.
        on_expelled: See there too.
    """
    session_s = settings.session_timeout.total_seconds()
    brokers = settings.kafka_bootstrap.split(",")
    app = ByteBoundedApp(
        f"{settings.topic_prefix}{PART}",
        broker=";".join(f"aiokafka://{one}" for one in brokers),
        broker_credentials=_credentials(settings),
        store="memory://",
        datadir=str(settings.scheduler_data),
        autodiscover=False,
        web_enabled=False,
        key_serializer="raw",
        value_serializer="raw",
        broker_client_id=group_members.member_client_id(
            settings, f"{settings.topic_prefix}{PART}"
        ),
        broker_session_timeout=session_s,
        broker_heartbeat_interval=session_s / 3,
        # A member that hears the group and does not come to it holds all others up as long.
        broker_rebalance_timeout=max(2 * session_s, _MIN_REBALANCE_S),
        broker_commit_interval=1.0,
        consumer_metadata_max_age_ms=clients.METADATA_AGE_MS,
        stream_buffer_maxsize=_BUFFERED_RECORDS,
        table_standby_replicas=0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        TableManager=_TableManagerWithoutRecovery,
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


def _credentials(settings: Settings) -> Any:  # noqa: ANN401  # Faust is untyped
    """Faust's own form of the connection settings; None for a plain connection."""
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
