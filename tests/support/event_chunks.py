"""Helpers of `test_event_streams.py` and of other tests."""


async def chunk(response):
    """The next event or comment, without the blank line that ends it."""
    return (await response.content.readuntil(b"\n\n")).decode().removesuffix("\n\n")
