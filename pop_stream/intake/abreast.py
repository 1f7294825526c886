"""Waits for the definitions that submissions were let in by, if those are still on their way.

The API may know an insight a moment before intake does. What it has answered with 202 would be
refused here, for fitting no insight.
"""

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import Final

import structlog
from aiokafka import ConsumerRecord

from pop_stream.bus.definitions import header_version
from pop_stream.core.doors.seal import DEFINITIONS_VERSION_HEADER
from pop_stream.core.errors import UnavailableError
from pop_stream.ports.definitions import FollowedDefinitions

_MAX_WAIT_S: Final = 5.0
_PAUSE_AFTER_TIMEOUT_S: Final = 60.0
_POLL_EVERY_S: Final = 0.01

_log = structlog.get_logger()


class DefinitionsBarrier:
    """Keeps intake from judging by older definitions than the API did.

    Anyone who may write submissions may name any version. What is not written is not waited
    for, so that nobody holds up others by it.

    Args:
        definitions: As intake hears of them.
        max_wait_s: Longest wait. Then what is known decides, and for a minute nothing is
            waited for: definitions cannot be read.
    """

    def __init__(
        self, definitions: FollowedDefinitions, max_wait_s: float = _MAX_WAIT_S
    ) -> None:
        self._definitions = definitions
        self._max_wait_s = max_wait_s
        self._paused_until = 0.0

    async def catch_up(self, records: Iterable[ConsumerRecord]) -> None:
        """Return once the definitions are as new as those that the records were judged by."""
        newer = {header_version(one, DEFINITIONS_VERSION_HEADER) for one in records}
        newer = {one for one in newer if one > self._definitions.read_up_to}
        if not newer or monotonic() < self._paused_until:
            return
        try:
            async with asyncio.timeout(self._max_wait_s):
                written = await self._definitions.written()
                wanted = max((one for one in newer if one <= written), default=0)
                while self._definitions.read_up_to < wanted:  # noqa: ASYNC110  # no event
                    await asyncio.sleep(_POLL_EVERY_S)
        except (TimeoutError, UnavailableError):
            self._paused_until = monotonic() + _PAUSE_AFTER_TIMEOUT_S
            known = self._definitions.read_up_to
            _log.warning("definitions.behind", known=known, told=max(newer))
