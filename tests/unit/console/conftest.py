"""A browser of the console, whose API each file makes as it needs it."""

from collections.abc import AsyncIterator

import pytest
from api_fakes import ApiUnderTest
from console_viewer import Browser, console


@pytest.fixture
async def browser(api: ApiUnderTest) -> AsyncIterator[Browser]:
    """Somebody who need not sign in, before the file's own API."""
    async with console(api, signs_in=False) as one:
        yield one
