"""Calls for insights."""

from pop_stream.client.definitions import DefinitionCalls
from pop_stream.client.transport import Transport
from pop_stream.core.definitions.definitions import Insight
from pop_stream.shapes.queues import QueueView


class InsightCalls(DefinitionCalls[Insight]):
    """Insights, and how it goes in them."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, "insights", Insight)

    async def queue(self, insight_id: str) -> QueueView:
        """What waits in an insight, whose it is, and how fast it goes.

        Raises:
            NotFoundError: If there is none, or none that the caller may see.
            ApiError: If there is no answer.
        """
        return await self._transport.read(QueueView, "insights", insight_id, "queue")
