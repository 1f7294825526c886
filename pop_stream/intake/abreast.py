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

from pop_stream.bus.definitions import version_in
from pop_stream.core.doors.seal import JUDGED_BY
from pop_stream.ports.definitions import DefinitionSource

_PATIENCE_S: Final = 5.0
_TRUSTS_AGAIN_AFTER_S: Final = 60.0
"""Anyone who may write submissions may name a version that never comes."""

_LOOK_EVERY_S: Final = 0.01

_log = structlog.get_logger()


class Abreast:
    """Keeps intake from judging by older definitions than the API did.

    Args:
        definitions: As intake hears of them.
        patience_s: Longest wait. Then what is known decides, and for a minute nothing is
            waited for.
    """

    def __init__(self, definitions: DefinitionSource, patience_s: float = _PATIENCE_S) -> None:
        self._definitions = definitions
        self._patience_s = patience_s
        self._trusts_from = 0.0

    async def catch_up(self, records: Iterable[ConsumerRecord]) -> None:
        """Return once the definitions are as new as those that the records were judged by."""
        version = max((version_in(one, JUDGED_BY) for one in records), default=0)
        if version <= self._definitions.current.version or monotonic() < self._trusts_from:
            return
        try:
            async with asyncio.timeout(self._patience_s):
                while self._definitions.current.version < version:  # noqa: ASYNC110  # no event
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            self._trusts_from = monotonic() + _TRUSTS_AGAIN_AFTER_S
            known = self._definitions.current.version
            _log.warning("definitions.behind", known=known, wanted=version)
