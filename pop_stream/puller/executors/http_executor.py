"""What executors have in common that are asked over HTTP."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pop_stream.puller.executors.port import RunIdentity

if TYPE_CHECKING:
    import aiohttp

SHOWN: Final = 500
"""Most characters of what a server says that a reason quotes."""


class HttpExecutor:
    """The connections of an executor, and the names of its runs.

    Args:
        installation: Of several that share a server, each has a name of its own.
    """

    def __init__(self, installation: str) -> None:
        self._installation = installation
        self._session: aiohttp.ClientSession | None = None

    def name(self, identity: RunIdentity) -> str:
        """The name of a run."""
        return f"{self._installation}-{identity.suffix}"

    async def close(self) -> None:
        """Close connections; the next call opens them again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def decoded(raw: bytes) -> Any:  # noqa: ANN401  # JSON
    """The JSON of an answer; of one that is none, an object with its text as `message`."""
    try:
        return json.loads(raw)
    except ValueError:
        return {"message": raw.decode(errors="replace")}


def message_of(answer: object) -> str:
    """Why a server refuses: the `message` of an answer of Docker's or Kubernetes' kind."""
    said = answer.get("message") if isinstance(answer, Mapping) else answer
    return str(said or "no reason given")[:SHOWN]
