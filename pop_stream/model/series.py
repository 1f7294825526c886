"""A series: agendas of one source in an order, each of which is placed once at most.

A source that submits an agenda and crashes does not know whether it did. With a series it may
submit it again: the scheduler of the insight remembers, by customer and series, the last
position that it placed, and drops what is at or before that, also when what it placed there has
ended long ago. An id alone does not achieve that.

Positions must reach the scheduler in their order, or one that comes late is dropped though it
never ran. So all agendas of a series go to one partition of `pop.submissions`; the API sees to
it, other producers choose the partition by `series_partition`.
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pop_stream.model.events.base import SeriesPosition
from pop_stream.model.ids import ID_LENGTH, ID_PATTERN
from pop_stream.model.json_types import WHOLE_NUMBER
from pop_stream.model.partitioning import partition_of

MAX_POSITION: Final = 2**53 - 1
"""The last position of a series: the largest integer that every reader of JSON keeps exact."""


class Series(BaseModel):
    """Where an agenda stands in a series."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=ID_LENGTH)] = Field(
        description="Names the series among its customer's own."
    )
    position: Annotated[int, Field(ge=0, le=MAX_POSITION), WHOLE_NUMBER] = Field(
        description="Greater than that of every agenda of the series submitted before."
    )

    @property
    def wire(self) -> SeriesPosition:
        """The same as the scheduler gets it."""
        return SeriesPosition(id=self.id, position=self.position)


def series_key(customer_id: str, series_id: str) -> str:
    """What names a series among those of all customers; no id has a space in it."""
    return f"{customer_id} {series_id}"


def series_partition(customer_id: str, series_id: str, partitions: int) -> int:
    """The partition of `pop.submissions` to which all agendas of a series go.

    Args:
        customer_id: Of the agendas.
        series_id: As in the agendas.
        partitions: How many the topic has, at least 1. If there are more later, agendas on both
            sides of the change may be read in either order.
    """
    return partition_of(series_key(customer_id, series_id).encode(), partitions)
