"""What paths and queries may hold: checked before anything is looked up by it."""

import re
from dataclasses import dataclass
from typing import Final, TypeVar, get_origin

from aiohttp import web
from annotated_types import MaxLen
from pydantic import BaseModel, ValidationError

from pop_stream.api.http.errors import InvalidError
from pop_stream.api_models.dead_letters import LETTER_ID_PATTERN
from pop_stream.model.api_keys import KEY_ID_PATTERN
from pop_stream.model.ids import (
    ID_LENGTH,
    ID_PATTERN,
    INSIGHT_ID_LENGTH,
    OPERATION_NAME_PATTERN,
    OWN_ID_LENGTH,
    OWN_ID_PATTERN,
    TOPIC_SAFE_PATTERN,
)
from pop_stream.model.validation import (
    MAX_QUERY_VALUES,
    excess_issue,
    is_storable,
    issues_of,
    unstorable_issue,
)
from pop_stream.policy.lifecycle.dead_letters import ID_BYTES

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class IdPattern:
    """What one kind of id looks like."""

    pattern: str
    max_length: int

    def fits(self, named: str) -> bool:
        """Whether anything can have this id, so that odd text is never looked up."""
        return len(named) <= self.max_length and bool(re.fullmatch(self.pattern, named))


_PLAIN: Final = IdPattern(ID_PATTERN, ID_LENGTH)


_CUSTOMER_CHOSEN: Final = IdPattern(OWN_ID_PATTERN, OWN_ID_LENGTH)


_NUMBER: Final = IdPattern(r"[0-9]+", 18)
"""What a bigint holds."""


_PATTERNS: Final = {
    "agenda_id": _CUSTOMER_CHOSEN,
    "template_id": _CUSTOMER_CHOSEN,
    "insight_id": IdPattern(TOPIC_SAFE_PATTERN, INSIGHT_ID_LENGTH),
    "key_id": IdPattern(KEY_ID_PATTERN, 16),
    "letter_id": IdPattern(LETTER_ID_PATTERN, 2 * ID_BYTES),
    "version": _NUMBER,
    "attempt": _NUMBER,
    "operation": IdPattern(OPERATION_NAME_PATTERN, 200),
}


def id_pattern(parameter: str) -> IdPattern:
    """What the ids that a parameter of a path takes look like."""
    return _PATTERNS.get(parameter, _PLAIN)


def most_values(shape: type[BaseModel], name: str) -> int:
    """How often a query may give the parameter that this field of a model is read from."""
    info = shape.model_fields[name]
    if get_origin(info.annotation) is not tuple:
        return 1
    stated = (one.max_length for one in info.metadata if isinstance(one, MaxLen))
    return min(MAX_QUERY_VALUES, *stated)


def read_query(request: web.Request, shape: type[M]) -> M:
    """A request's query, as a model.

    Args:
        request: Whose query.
        shape: Of which each parameter is a field; fields that are tuples may be given as
            often as `most_values` says.

    Raises:
        InvalidError: With one issue per parameter that is not what it must be.
    """
    parameters: dict[str, object] = {}
    for name in request.query:
        values = request.query.getall(name)
        for text in (name, *values):
            if not is_storable(text):
                raise InvalidError([unstorable_issue("query", text)])
        most = most_values(shape, name) if name in shape.model_fields else 1
        if 1 < most < len(values):
            raise InvalidError([excess_issue(name, len(values), most)])
        parameters[name] = values if most > 1 or len(values) > 1 else values[0]
    try:
        return shape.model_validate(parameters)
    except ValidationError as error:
        raise InvalidError(issues_of(error, document="query")) from None
