"""Reads the topic of an insight, as a member of whichever kind of group serves it.

`subscription.run_subscription` runs one insight until the puller stops. An insight has a
topic for each kind of group, which appears with its first agenda; the subscription waits for
one and starts the consumer of that kind:

- `insight_consumer.InsightConsumer`, for a consumer group. Partitions are shared out among
  the members. It reads ahead of what can start, keeps the records in the claim pipeline's
  hand, and commits what is claimed. Before partitions move it drops what is in hand and
  waits for the commits in progress, so that as little as possible is read twice.
- `share_insight_consumer.ShareInsightConsumer`, for a share group. Any member is given any
  record, so it takes one only while a slot is free, and acknowledges it once it is claimed.

Neither loses a record. A commit or an acknowledgement that is refused, or never answered,
abandons the claims it was for: what was not written is read again, by this member or
another, and what was written comes back as the next attempt when its lease ends.

Any fault of Kafka ends a consumer, and its subscription starts another one a second later. Only
a share group whose client is not installed ends the subscription.
"""
