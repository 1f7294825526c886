"""What the audit makes of offsets that move while it looks."""

from types import SimpleNamespace

from pop_stream.operations import ledger as module
from pop_stream.operations.ledger import LedgerAudit
from pop_stream.settings import Settings


async def found(monkeypatch, *, before, after, begin=0, end=5):
    """What is wrong with one partition, folded so far before its offsets were asked for."""
    asked = []

    async def offsets(settings, topic):
        asked.append(topic)
        return {0: begin}, {0: end}

    async def folded(topic):
        return {0: after if asked else before}

    monkeypatch.setattr(module, "_offsets", offsets)
    audit = LedgerAudit()
    ledger = SimpleNamespace(folded=folded)
    await module._until_folded(Settings(), ledger, audit)
    return audit.offsets


async def test_what_is_told_and_folded_while_the_audit_looks_is_no_fault(monkeypatch):
    assert await found(monkeypatch, before=5, after=6) == []


async def test_what_was_folded_beyond_the_end_before_the_look_is_one(monkeypatch):
    [fault] = await found(monkeypatch, before=6, after=6)
    assert "folded up to 6 and ends at 5" in fault


async def test_what_was_removed_and_never_folded_is_one(monkeypatch):
    [fault] = await found(monkeypatch, before=2, after=2, begin=3)
    assert "never folded" in fault
