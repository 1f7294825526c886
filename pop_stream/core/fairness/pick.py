"""What the fair queue chose."""

from typing import NamedTuple

from pop_stream.core.values.ids import CustomerId


class Pick(NamedTuple):
    """One agenda chosen.

    Attributes:
        ref: Its place in the backlog.
        cost: Worker-seconds it was taken to cost.
        charge: What it moved its customer's tag by, to be corrected when it settles.
    """

    customer_id: CustomerId
    ref: int
    cost: float
    charge: float
