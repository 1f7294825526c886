"""What each customer may submit here; the rest is answered with 429 and when to come back."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from pop_stream.api.problems import QuotaError
from pop_stream.core.ids import CustomerId
from pop_stream.core.quota import Bucket, take
from pop_stream.ports import DefinitionSource

_MOST_KNOWN: Final = 100_000
"""Customers whose allowance is remembered; who is forgotten has submitted nothing for long."""


class Quota:
    """Holds submissions to `max_submit_per_s` of their customer's definition.

    Each API process counts for itself: several of them let through as many times as much.

    Args:
        definitions: Of customers; a change acts on the next submission.
        now_s: Of a clock that never goes back.
    """

    def __init__(
        self, definitions: DefinitionSource, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._definitions = definitions
        self._now_s = now_s
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def admit(self, customer_id: str) -> None:
        """Count one agenda of a customer.

        Raises:
            QuotaError: If it would be one too many.
        """
        customer = self._definitions.current.customers.get(CustomerId(customer_id))
        if customer is None or customer.max_submit_per_s is None:
            return
        rate = customer.max_submit_per_s
        bucket, wait_s = take(
            self._buckets.pop(customer_id, None),
            rate_per_s=rate,
            burst=customer.submit_burst,
            now_s=self._now_s(),
        )
        self._buckets[customer_id] = bucket
        if len(self._buckets) > _MOST_KNOWN:
            self._buckets.popitem(last=False)
        if wait_s:
            raise QuotaError(customer_id, rate, retry_after_s=wait_s)
