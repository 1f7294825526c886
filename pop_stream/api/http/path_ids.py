"""What the ids in paths may look like, for the document and for those who look them up."""

import re
from dataclasses import dataclass
from typing import Final

from pop_stream.core.definitions.keys import KEY_ID_PATTERN
from pop_stream.core.values.ids import (
    ID_LENGTH,
    ID_PATTERN,
    INSIGHT_ID_LENGTH,
    OWN_ID_LENGTH,
    OWN_ID_PATTERN,
    TOPIC_SAFE_PATTERN,
)


@dataclass(frozen=True, slots=True)
class IdShape:
    """The look of one kind of id."""

    pattern: str
    longest: int

    def fits(self, named: str) -> bool:
        """Whether anything can have this id, so that odd text is never looked up."""
        return len(named) <= self.longest and bool(re.fullmatch(self.pattern, named))


_PLAIN: Final = IdShape(ID_PATTERN, ID_LENGTH)
_OWN: Final = IdShape(OWN_ID_PATTERN, OWN_ID_LENGTH)
_SHAPES: Final = {
    "agenda_id": _OWN,
    "template_id": _OWN,
    "insight_id": IdShape(TOPIC_SAFE_PATTERN, INSIGHT_ID_LENGTH),
    "key_id": IdShape(KEY_ID_PATTERN, 16),
}


def id_shape(parameter: str) -> IdShape:
    """The look of the ids that a parameter of a path takes."""
    return _SHAPES.get(parameter, _PLAIN)
