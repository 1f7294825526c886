"""Calls of those who run the service: probes, metrics, the document."""

from typing import Any

from pop_stream.client.content import decoded
from pop_stream.client.errors import ApiUnavailableError
from pop_stream.client.transport import Call, Calls
from pop_stream.shapes.service import Health, Readiness


class ServiceCalls(Calls):
    """How the process at the other end is."""

    async def health(self) -> Health:
        """The process is alive, whatever else is away.

        Raises:
            ApiError: If it is not.
        """
        return decoded(await self._get("/healthz"), Health)

    async def readiness(self) -> Readiness:
        """Kafka and Postgres answer; asked once.

        Raises:
            ApiUnavailableError: If they do not; `problem.parts` says which is away.
        """
        return decoded(await self._get("/readyz", is_probe=True), Readiness)

    async def is_ready(self) -> bool:
        """Whether the API answers and says that all it depends on does."""
        try:
            await self.readiness()
        except ApiUnavailableError:
            return False
        return True

    async def metrics(self) -> str:
        """Metrics in the text format of Prometheus.

        Raises:
            ApiError: If there is no answer.
        """
        return (await self._get("/metrics")).decode()

    async def document(self) -> dict[str, Any]:
        """The OpenAPI document.

        Raises:
            ApiError: If there is no answer.
        """
        return decoded(await self._get("/openapi.json"), dict[str, Any])

    async def _get(self, place: str, *, is_probe: bool = False) -> bytes:
        call = Call(method="GET", path=place, is_repeatable=True, is_probe=is_probe)
        return (await self._transport.ask(call)).body
