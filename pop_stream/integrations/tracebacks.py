"""What a diagnostic says of an exception that a task raised, as short as it must be."""

import json
from typing import Final

_TRACEBACK_BYTES: Final = 1_500
"""Kept of a traceback as JSON, from its end; a diagnostic holds 2,000 in all."""


def error_detail(error: BaseException, traceback: str) -> dict[str, str]:
    """The exception's dotted path, and the end of its traceback."""
    path = f"{type(error).__module__}.{type(error).__qualname__}"
    return {"exception": path, "traceback": _shortened(traceback)}


def _shortened(text: str) -> str:
    while len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) > _TRACEBACK_BYTES:
        text = "…" + text[len(text) // 4 :]
    return text
