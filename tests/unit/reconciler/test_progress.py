"""What the audit makes of offsets that move while it compares."""

from types import SimpleNamespace

from pop_stream.kafka.topics import Topics
from pop_stream.reconciler.progress import PartProgress, TopicBounds


async def found(*, before, after, begin=0, end=5):
    """What is wrong with one partition, folded so far before its bounds were read."""
    asked = []

    async def bounds(topic):
        asked.append(topic)
        return TopicBounds({0: begin}, {0: end})

    async def folded(topic):
        return {0: after if asked else before}

    progress = PartProgress(Topics("t."), SimpleNamespace(folded=folded), None, bounds)
    return (await progress.check_folding()).errors


async def test_what_is_written_and_folded_while_the_audit_compares_is_no_error():
    assert await found(before=5, after=6) == []


async def test_what_was_folded_beyond_the_end_before_the_comparison_is_one():
    [error] = await found(before=6, after=6)
    assert "folded up to 6 and ends at 5" in error


async def test_what_was_removed_and_never_folded_is_one():
    [error] = await found(before=2, after=2, begin=3)
    assert "never folded" in error
