"""What is wrong with a document from outside: by field, value and remedy."""

import json
import re
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.ids import ID_PATTERN, OWN_ID_PATTERN, TOPIC_SAFE_PATTERN
from pop_stream.model.pop_names import replacement_for

Text = TypeVar("Text", bound=bytes | bytearray | str)

_UNKNOWN_FIELD: Final = "is no field here; leave it out, or correct its name"

_PATTERN_MESSAGES: Final = {
    ID_PATTERN: "may hold letters, digits and ._:~-, and begins with a letter or digit",
    OWN_ID_PATTERN: "may hold letters, digits and ._:~-, and begins with a letter or digit",
    TOPIC_SAFE_PATTERN: "may hold letters, digits and ._-, and begins with a letter or digit",
}

_NUL_TEXT: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_NUL_BYTES: Final = re.compile(_NUL_TEXT.pattern.encode())


def issues_of(error: ValidationError, *, document: str) -> list[Issue]:
    """One issue per error that pydantic found, as many as a refusal lists.

    Args:
        error: What validation raised.
        document: What the whole is called, for an error of no field in particular.
    """
    errors = error.errors(include_url=False, include_context=True)
    issues = [_issue(one, document) for one in errors if not _is_consequence(one)]
    return issues[: SubmissionError.MAX_ISSUES]


def _is_consequence(error: ErrorDetails) -> bool:
    """Whether it only follows from others: a list whose items were all refused is too short."""
    return error["type"] == "too_short" and len(error["input"]) > error["ctx"]["actual_length"]


def _issue(error: ErrorDetails, document: str) -> Issue:
    field = path_of(error["loc"], document=document)
    match error["type"]:
        case "missing":
            return Issue(field, "nothing", "is required; give it")
        case "extra_forbidden":
            ours = replacement_for(str(error["loc"][-1]))
            message = f"is no field here; use {ours}" if ours else _UNKNOWN_FIELD
            return Issue(field, shorten(error["input"]), message)
        case "string_pattern_mismatch" if words := _PATTERN_MESSAGES.get(
            error["ctx"]["pattern"]
        ):
            return Issue(field, shorten(error["input"]), words)
        case _:
            message = error["msg"].removeprefix("Value error, ")
            return Issue(field, shorten(error["input"]), message)


def path_of(location: tuple[int | str, ...], *, document: str) -> str:
    """A place in a document as its writer would name it: `operations[2].name`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return shorten(text or document)


def shorten(value: object, most: int = 200) -> str:
    """A value as text, cut to what an issue may show."""
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode(errors="replace")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def without_nul(data: Text, *, document: str) -> Text:
    """The JSON text as it is.

    Raises:
        SubmissionError: If it holds a NUL character.
    """
    # Looking for the plain text first is twenty times as fast, and mostly enough.
    if isinstance(data, str):
        found = "\\u0000" in data and bool(_NUL_TEXT.search(data))
    else:
        found = b"\\u0000" in data and bool(_NUL_BYTES.search(data))
    if found:
        issue = Issue(document, "\\u0000", "holds a NUL character, which no database text can")
        raise SubmissionError([issue])
    return data
