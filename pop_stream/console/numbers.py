"""Whole numbers as forms and addresses have them: of few digits, or refused."""

from typing import Final

from multidict import MultiMapping

from pop_stream.model.errors import Issue, SubmissionError

MAX_DIGITS: Final = 18
"""Any number of this many digits fits into eight bytes."""


def whole_number(text: str) -> int | None:
    """The number that a text of digits stands for; None if it is no such text, or too long."""
    is_one = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_one else None


def version_in(form: MultiMapping[str]) -> int:
    """The version that a form names.

    Raises:
        SubmissionError: If it names none.
    """
    text = form.get("version", "")
    number = whole_number(text)
    if number is None:
        issue = Issue("version", text[:200], "must be a version; open the page again")
        raise SubmissionError([issue])
    return number
