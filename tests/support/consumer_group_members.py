"""Members of a consumer group on a real broker."""

from aiokafka import AIOKafkaConsumer
from deadlines import within

from pop_stream.kafka import connections, topics
from pop_stream.kafka.topics import TopicSpec
from pop_stream.settings import Settings

WITHIN_S = 30


async def work_topic(settings: Settings) -> str:
    """The name of a new topic with two partitions."""
    async with connections.admin_client(settings) as admin:
        name = f"{settings.topic_prefix}work"
        await topics.ensure(admin, [TopicSpec(name, 2)], replication_factor=1)
    return name


async def until_assigned(consumer: AIOKafkaConsumer, count: int) -> None:
    """Until a member has been given so many partitions; it goes on reading meanwhile."""
    async with within(WITHIN_S):
        while len(consumer.assignment()) != count:
            await consumer.getmany(timeout_ms=50)
