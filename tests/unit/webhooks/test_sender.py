"""A try that ends as no try may ends the sender, and so its process."""

import asyncio
from types import SimpleNamespace

import pytest
from deadlines import within
from fakes import MemoryPublisher

from pop_stream.background import BackgroundTaskError
from pop_stream.settings import Settings
from pop_stream.webhooks.sender import WebhookSender


class Outbox:
    """One webhook that is due, and no end of looking for more."""

    def __init__(self):
        self.due = [
            SimpleNamespace(
                number=1, webhook_id="w1", agenda_id="a1", customer_id="acme",
                url="http://127.0.0.1:1/", body="{}", tries=1,
            )
        ]  # fmt: skip

    async def claim(self, most, in_flight):
        due, self.due = self.due, []
        return due


class BrokenClock:
    def now(self):
        why = "it fell over"
        raise ZeroDivisionError(why)


async def test_the_sender_ends_when_a_try_dies_and_says_why():
    settings = Settings(webhook_keys=("k" * 32,))
    sending = WebhookSender(settings, Outbox(), MemoryPublisher(), BrokenClock())
    async with within(10), sending as sender:
        with pytest.raises(BackgroundTaskError, match="it fell over"):
            await sender.run(asyncio.Event())
