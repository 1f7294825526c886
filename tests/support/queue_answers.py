"""What a scheduler answers when it is asked about the queue of the insight `files`."""

from api_fakes import AT

from pop_stream.model.events.forecast import CustomerForecast, QueueForecast, StartForecast
from pop_stream.model.events.scheduling import CustomerShare, QueueDescribed


def described(**changes) -> QueueDescribed:
    known = {
        "insight_id": "files", "query_id": "q", "at": AT, "algorithm": "weighted_fair",
        "ready": 12, "lag": 1, "in_flight": 3, "slots": 0, "target": 8, "rate_per_s": 1.5,
        "customers": (CustomerShare("acme", 0, 9, 3, 2.0), CustomerShare("beta", 0, 3, 0, 1.0)),
        "others": 0,
    }  # fmt: skip
    return QueueDescribed(**(known | changes))


def forecasting(**changes) -> QueueDescribed:
    """The scheduler's answer to what a weight of 3.5 would do."""
    before = StartForecast(next_s=0.0, last_s=60.0, started=(5, 9))
    after = StartForecast(next_s=0.0, last_s=35.0, started=(8, 9))
    acme = CustomerForecast(
        customer_id="acme", ready=9, weight=2.0, new_weight=3.5, before=before, after=after
    )
    forecast = QueueForecast(rate_per_s=1.5, horizon_s=60.0, customers=(acme,))
    return described(forecast=forecast, **changes)
