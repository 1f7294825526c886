"""Results of operations as JSON: what is allowed, and how large."""

import json
import re
from typing import Final

from pop_stream.pullers.errors import FinalError

RESULT_BYTES: Final = 256 * 1024
"""Largest result of one operation, as JSON. Put larger things into a store of your own and
return where they are: events carry results, and every reader pays for them."""

NO_RESULT: Final = b""
"""Stands for null: an operation that returned nothing."""

_ENCODER: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def encode_result(value: object) -> bytes:
    """The result as JSON; empty for None.

    Raises:
        FinalError: If JSON cannot say it or it is too large, with the reason and a remedy.
    """
    if value is None:
        return NO_RESULT
    try:
        text = _ENCODER.encode(value)
        encoded = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it holds NaN or Infinity" if "Out of range" in str(error) else error
        msg = (
            f"the result, a {type(value).__name__}, is not JSON: {reason}; return objects, "
            "lists, text, finite numbers, booleans and null only"
        )
        raise FinalError(msg) from error
    if len(encoded) > RESULT_BYTES:
        msg = (
            f"the result has {len(encoded)} bytes, at most {RESULT_BYTES} are allowed; "
            "store it elsewhere and return where it is"
        )
        raise FinalError(msg)
    if "\\u0000" in text and _NUL.search(text):
        msg = "the result holds a NUL character, which no database text can; leave it out"
        raise FinalError(msg)
    return encoded
