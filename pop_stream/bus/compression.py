"""How batches of records are compressed: lz4, as fast as it can be."""

import sys
from typing import Final

from aiokafka import codec
from aiokafka.record.default_records import DefaultRecordBatchBuilder

FORMAT: Final = "lz4"

_LEVEL: Final = 1
"""The client's is 9: seven times the processor time, for a tenth fewer bytes."""


def compress_fast() -> None:
    """Have all producers of this process use that level; a second call changes nothing.

    The client has no setting for it. The level tells how long an encoder looks for repeats:
    what it writes is of the same format, and any reader reads it.
    """
    builder = sys.modules[DefaultRecordBatchBuilder.__module__]
    builder.lz4_encode = _encode  # type: ignore[attr-defined]  # by the module's own name


def _encode(payload: bytes) -> bytes:
    encoded: bytes = codec.lz4_encode(payload, level=_LEVEL)
    return encoded
