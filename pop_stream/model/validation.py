"""What is wrong with a document from outside: by field, value and remedy.

Fields that Comcast's POP calls by another name are recognised; the error suggests ours.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.ids import ID_PATTERN, OWN_ID_PATTERN, TOPIC_SAFE_PATTERN

MAX_QUERY_VALUES: Final = 100
"""Most values of one parameter of a query."""

_FIELDS: Final[Mapping[str, str]] = {
    "agendaInsight": "insight_id, which is answered and never sent",
    "agendaTemplateId": "template_id",
    "allowedCustomerIds": "allowed, with visibility allowed",
    "cid": "the header X-Correlation-Id",
    "customerId": "customer_id of an agenda, owner of a definition",
    "defaultInsight": "default_insight, in params of an agenda",
    "dependsOn": "depends_on of an operation, a list",
    "doNotRun": "hold",
    "externalId": "external_id in params",
    "external_id": "external_id in params",
    "isGlobal": "visibility global",
    "linkId": "link_id",
    "maximumAttempts": "max_attempts",
    "progressId": "link_id, which joins agendas that keep their own progress",
    "queueName": "the topic pop.insight.<id>",
    "queueSize": "target",
    "resourcePoolId": "pool",
    "schedulingAlgorithm": "algorithm, with round_robin or fifo",
    "staticParameters": "static_params",
    "operationName": "operation_names",
    "operationType": "operation_types",
    "paramMap": "params",
}

_AGENDA_PARAMS: Final[Mapping[str, str]] = {
    "doNotRun": "the agenda's field hold",
    "maximumAttempts": "the agenda's field max_attempts",
}
_OPERATION_PARAMS: Final[Mapping[str, str]] = {
    "dependsOn": "the operation's field depends_on, a list",
    "agenda.operation.generator": "an operation of type append with this one's result",
}


def replacement_for(field: str) -> str | None:
    """What stands here for a field of POP's; None if there is none of that name."""
    return _FIELDS.get(field)


def legacy_param_issues(
    of_agenda: Mapping[str, object], of_operations: Iterable[Mapping[str, object]]
) -> Iterator[Issue]:
    """Params that steered something in POP and would be ignored here in silence."""
    yield from _issues(of_agenda, _AGENDA_PARAMS, "params")
    for index, params in enumerate(of_operations):
        if params:
            yield from _issues(params, _OPERATION_PARAMS, f"operations[{index}].params")


def _issues(
    params: Mapping[str, object], moved: Mapping[str, str], path: str
) -> Iterator[Issue]:
    for name in sorted(params.keys() & moved.keys()):
        message = f"steers nothing as a param; use {moved[name]}"
        yield Issue(f"{path}.{name}", str(params[name])[:200], message)


Text = TypeVar("Text", bound=bytes | bytearray | str)

_UNKNOWN_FIELD: Final = "is no field here; leave it out, or correct its name"

_PATTERN_MESSAGES: Final = {
    ID_PATTERN: "may hold letters, digits and ._:~-, and begins with a letter or digit",
    OWN_ID_PATTERN: "may hold letters, digits and ._:~-, and begins with a letter or digit",
    TOPIC_SAFE_PATTERN: "may hold letters, digits and ._-, and begins with a letter or digit",
}

_UNSTORABLE: Final = re.compile("[\\0\\ud800-\\udfff]")
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


def is_storable(text: str) -> bool:
    """Whether a database can hold the text, or look it up: no NUL, no half of a pair."""
    return not _UNSTORABLE.search(text)


def unstorable_issue(field: str, text: str) -> Issue:
    """The issue for a text that no database can hold."""
    return Issue(field, ascii(shorten(text)), "holds a character that no text can")


def excess_issue(field: str, times: int, most: int) -> Issue:
    """The issue for a parameter of a query that is given too often."""
    return Issue(
        field, f"{times} values", f"may be given {most} times at most; ask again for more"
    )


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
