"""Cleans and truncates texts of handlers, so that JSON and any database can hold them."""

import json
from typing import Final

MAX_MESSAGE_LENGTH: Final = 2_000
"""Longest message of a report or a failure, in characters; the rest is cut."""

BRIEF_LENGTH: Final = 500
"""Longest message of a diagnostic of an operation, of which there may be several."""

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def clean(text: str) -> str:
    """The text without NUL and lone surrogates, which no reader could store or encode."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode(errors="replace").decode()
    return text


def message(text: str) -> str:
    """The text, clean and at most `MAX_MESSAGE_LENGTH` long."""
    return clean(
        text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[: MAX_MESSAGE_LENGTH - 1]}…"
    )


def brief(text: str) -> str:
    """The text, clean and at most `BRIEF_LENGTH` long."""
    return clean(text if len(text) <= BRIEF_LENGTH else f"{text[: BRIEF_LENGTH - 1]}…")


def excerpt(raw: bytes, *, most_bytes: int) -> tuple[str, bool]:
    """The beginning of what should be text, and whether something was cut off.

    Args:
        raw: In UTF-8; what is not is replaced.
        most_bytes: That the text may take in JSON.
    """
    text = clean(raw[:most_bytes].decode(errors="replace"))
    whole = len(raw) <= most_bytes
    while (size := len(json.dumps(text, ensure_ascii=False).encode())) > most_bytes:
        text = text[: len(text) * most_bytes // size - 1]
        whole = False
    return text, not whole
