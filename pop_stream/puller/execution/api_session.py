"""The puller's connections to the API, for what is not in Kafka.

The client's library is imported with the first request: it is a fifth of the start of a puller,
which may not need it.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from pop_stream.settings import Settings

if TYPE_CHECKING:
    import aiohttp

_REQUEST_S: Final = 10.0
_SUCCESSES: Final = (HTTPStatus.OK, HTTPStatus.ACCEPTED)


class ApiUnusableError(Exception):
    """The API does not answer, or not with a success: why, in words, with a remedy if any."""


class ApiSession:
    """Connections to the API, with the puller's token; close it at the end.

    Args:
        settings: Where the API is, and what token it wants.
        remedies: By status: what to do about an answer that is no success.
    """

    def __init__(self, settings: Settings, remedies: Mapping[int, str]) -> None:
        self._url = settings.api_url.rstrip("/")
        token = settings.api_token
        self._headers: Mapping[str, str] = (
            {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}
        )
        self._remedies = remedies
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections; a later request opens others."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def request(self, method: str, path: str, *, body: bytes | None = None) -> bytes:
        """The body of a success, asked for once.

        Args:
            method: Of HTTP.
            path: Quoted as a URL has it.
            body: JSON, if there is one.

        Raises:
            ApiUnusableError: If there is no success within seconds.
        """
        import aiohttp  # noqa: PLC0415  # see above

        if self._session is None:
            within = aiohttp.ClientTimeout(total=_REQUEST_S)
            self._session = aiohttp.ClientSession(timeout=within, headers=self._headers)
        types = {"Content-Type": "application/json"} if body is not None else {}
        try:
            async with self._session.request(
                method, f"{self._url}{path}", data=body, headers=types
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            msg = f"the API at {self._url} does not answer ({type(error).__name__})"
            raise ApiUnusableError(msg) from error
        if response.status not in _SUCCESSES:
            remedy = self._remedies.get(response.status, "")
            msg = f"the API at {self._url} answers {response.status}{remedy}"
            raise ApiUnusableError(msg)
        return answer
