"""Opens the client that commands call the API with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pop_stream.client.client import Client
from pop_stream.client.errors import ApiUnreachableError
from pop_stream.client.transport import NO_RETRY, Retry
from pop_stream.operations.environment import load_settings
from pop_stream.operations.errors import CommandError
from pop_stream.settings import Settings


@asynccontextmanager
async def open_client(
    settings: Settings | None = None, *, retry: Retry = NO_RETRY
) -> AsyncIterator[Client]:
    """A client of the API that the settings name, with their token.

    Args:
        settings: Those of this process's environment if None.
        retry: When a request is sent again; whoever waits at a terminal wants to know.

    Raises:
        CommandError: If the API cannot be reached, with what to do about it.
    """
    settings = settings or load_settings()
    token = settings.api_token
    shown = token.get_secret_value() if token else None
    try:
        async with Client(settings.api_url, token=shown, retry=retry) as client:
            yield client
    except ApiUnreachableError as error:
        msg = f"{error}\nStart one with `pop-stream dev`, or set POP_API_URL."
        raise CommandError(msg) from None
