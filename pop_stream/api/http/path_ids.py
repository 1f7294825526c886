"""What the ids in paths may look like: for the document, and before anything is looked up."""

import re
from dataclasses import dataclass
from typing import Final

from pop_stream.model.api_keys import KEY_ID_PATTERN
from pop_stream.model.ids import (
    ID_LENGTH,
    ID_PATTERN,
    INSIGHT_ID_LENGTH,
    OWN_ID_LENGTH,
    OWN_ID_PATTERN,
    TOPIC_SAFE_PATTERN,
)


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


_PATTERNS: Final = {
    "agenda_id": _CUSTOMER_CHOSEN,
    "template_id": _CUSTOMER_CHOSEN,
    "insight_id": IdPattern(TOPIC_SAFE_PATTERN, INSIGHT_ID_LENGTH),
    "key_id": IdPattern(KEY_ID_PATTERN, 16),
}


def id_pattern(parameter: str) -> IdPattern:
    """What the ids that a parameter of a path takes look like."""
    return _PATTERNS.get(parameter, _PLAIN)
