"""Every operation of the API has a call of the client, which reaches it and understands it."""

from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from memory_dead_letters import dead_letter
from msgspec import Raw
from real_api import real_api

from pop_stream.api_models.dead_letters import LetterCommand, LetterSelection
from pop_stream.api_models.pulls import OperationReport
from pop_stream.client import (
    ApiConflictError,
    ApiNotFoundError,
    ApiPreconditionError,
    BulkCommand,
    Client,
    Selection,
)
from pop_stream.model.definitions import Customer, Insight, Mappers, ResourcePool
from pop_stream.model.events.base import OperationProgress
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaClaimed, AgendaSucceeded
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import State
from pop_stream.postgres.dead_letters import PostgresDeadLetters
from pop_stream.postgres.pool import open_pool

AT = datetime(2026, 1, 1, tzinfo=UTC)
DEFINITIONS = """
[customers.acme]
[insights.files]
mappers = { operation_types = ["http"] }
"""
AGENDA = {"customer_id": "acme", "operations": [{"name": "fetch", "type": "http"}]}
TEMPLATE = {"id": "scan", "agenda": AGENDA}
RULE = {"id": "big", "topic": "files", "submission": AGENDA}
SCHEDULE = {"id": "tick", "trigger": {"every_s": 3600}, "submission": AGENDA}


@pytest.fixture
async def world(settings, tmp_path):
    file = tmp_path / "definitions.toml"
    file.write_text(DEFINITIONS)
    settings = settings.model_copy(update={"definitions_file": file})
    async with real_api(settings) as api, Client(api.url, token=api.token) as client:
        await _fold_some(api)
        facts = {"code": "final_failure", "agenda_id": "gone"}
        async with open_pool(settings) as pool:
            letters = [dead_letter(one * 20, **facts) for one in "ab"]
            await PostgresDeadLetters(pool).add(letters)
        yield api, client


async def _fold_some(api):
    """`ready` waits, `ended` succeeded; both are of the link `night`."""
    for agenda_id in ("ready", "ended"):
        await api.fold(
            AgendaAccepted(
                agenda_id=agenda_id,
                at=AT,
                insight_id="files",
                customer_id="acme",
                link_id="night",
                operations=("fetch",),
                agenda=Raw(msgspec.json.encode({"id": agenda_id, **AGENDA})),
            )
        )
    done = OperationProgress(name="fetch", state="succeeded", percent=100, result=Raw(b"[7]"))
    facts = {"agenda_id": "ended", "at": AT, "insight_id": "files", "attempt": 1}
    await api.fold(
        AgendaClaimed(**facts, puller_id="w1", lease_ms=60_000),
        AgendaSucceeded(**facts, operations=(done,)),
    )


async def _agendas(client):
    assert (await client.submit({"id": "a1", **AGENDA})).insight_id == "files"
    yield "submitAgendas"
    result = await client.submit_many([AGENDA, {"id": "bad"}])
    assert (result.accepted, result.refused) == (1, 1)
    yield "submitAgendas"
    ended = await client.agenda("ended")
    assert (ended.state, msgspec.json.decode(ended.agenda)["id"]) == (State.SUCCEEDED, "ended")
    yield "getAgenda"
    assert (await client.progress("ended")).operations[0].state == "succeeded"
    yield "getAgendaProgress"
    assert await client.callbacks("ended") == []
    yield "getAgendaCallbacks"
    assert msgspec.json.decode((await client.operation("ended", "fetch")).result) == [7]
    yield "getOperationProgress"
    assert (await client.link("night")).counts == {State.READY: 1, State.SUCCEEDED: 1}
    yield "getLinkSummary"
    assert [one.state async for one in client.follow("ended")] == [State.SUCCEEDED]
    yield "followAgenda"
    async with aclosing(client.follow_link("night")) as changes:
        assert (await anext(changes)).total == 2
    yield "followLink"
    assert (await client.why("ready")).queue.algorithm == "weighted_fair"
    yield "explainAgenda"
    found = [one.id async for one in client.agendas(Selection(state=(State.READY,)))]
    assert found == ["ready"]
    yield "listAgendas"
    assert (await client.explain("ready")).went_to == "files"
    yield "explainPlacement"
    assert (await client.explain_placement(AGENDA)).insight_id == "files"
    yield "explainPlacementOf"


async def _commands(client):
    assert (await client.hold("ready", reason="late")).action == "hold"
    yield "holdAgenda"
    assert (await client.reprioritise("ready", priority=1)).state is State.READY
    yield "reprioritiseAgenda"
    assert not (await client.cancel("ready")).done
    yield "cancelAgenda"
    assert (await client.release("ready")).done
    yield "releaseAgenda"
    assert (await client.rerun("ended", operations=["fetch"])).id == "ended"
    yield "rerunAgenda"
    hold = BulkCommand(action="hold", filter=Selection(link_id=("night",)), dry_run=True)
    assert (await client.command(hold)).skipped == {State.SUCCEEDED: 1}
    yield "commandAgendas"
    assert (await client.resubmit(dry_run=True)).resubmitted == 0
    yield "resubmitAgendas"
    await client.delete("ended")
    yield "deleteAgenda"
    with pytest.raises(ApiNotFoundError):
        await client.agenda("ended")


async def _definitions(client):
    kinds = [
        ("Pool", client.pools, ResourcePool(id="new", max_in_flight=3), {"max_in_flight": 5}),
        ("Customer", client.customers, Customer(id="new", weight=2), {"weight": 3.5}),
        (
            "Insight",
            client.insights,
            Insight(id="new", mappers=Mappers(operation_types=("x",))),
            {"max_attempts": 9},
        ),
        ("Template", client.templates, TEMPLATE | {"id": "new"}, {"title": "new"}),
        ("Schedule", client.schedules, SCHEDULE | {"id": "new"}, {"title": "new"}),
        ("Rule", client.rules, RULE | {"id": "new"}, {"title": "new"}),
    ]
    for name, calls, definition, change in kinds:
        made = await calls.create(definition)
        assert (made.definition.id, made.version) == ("new", 1)
        yield f"create{name}"
        changed = await calls.patch("new", change, if_match=1)
        assert changed.definition.model_dump().items() >= change.items()
        yield f"patch{name}"
        put = await calls.put("new", changed.definition, if_match=changed.version)
        assert put.definition == changed.definition
        yield f"put{name}"
        with pytest.raises(ApiPreconditionError):
            await calls.put("new", changed.definition, if_absent=True)
        read = await calls.get("new")
        assert await calls.get("new", known=read) is read
        yield f"get{name}"
        assert (await calls.version("new", 1)).definition == made.definition
        yield f"get{name}Version"
        assert "new" in [one.definition.id async for one in calls.all(sort="-id")]
        page = await calls.page({"id": ["new", "other"]}, fields=["id"])
        assert (page.items, page.total) == (({"id": "new"},), 1)
        yield f"list{name}s"
        await calls.delete("new", if_match=read.version)
        yield f"delete{name}"


async def _templates(client):
    await client.templates.create(TEMPLATE)
    assert (await client.templates.preview("scan")).insight_id == "files"
    yield "previewTemplate"
    divided = {**TEMPLATE, "id": "divided", "split": {"attributes": ["store"]}}
    await client.templates.create(divided)
    payload = {"url": "x", "stores": [1, 2], "isolate_stores": True}
    assert (await client.templates.preview_split("divided", {"payload": payload})).children == 2
    yield "previewSplit"
    assert (await client.stats.page()).next is None
    yield "getStats"
    assert (await client.stats.usage(["acme"])).next is None
    yield "getUsage"
    assert (await client.templates.run("scan", {"id": "r1"})).id == "r1"
    yield "runTemplate"
    assert (await client.insights.queue("files")).ready == 0
    yield "getInsightQueue"
    assert (await client.insights.forecast("files", {"acme": 2})).customers == []
    yield "forecastWeights"
    reported = await client.insights.report_health("files", 0.5, source="disk")
    assert (reported.source, reported.coefficient) == ("disk", 0.5)
    yield "putInsightHealth"


async def _keys(client):
    made = await client.keys.create([Role.READ], customer_id="acme", title="reader")
    yield "createKey"
    assert (await client.keys.get(made.id)).roles == (Role.READ,)
    yield "getKey"
    turned = await client.keys.rotate(made.id, grace=timedelta(0))
    assert turned.token != made.token
    yield "rotateKey"
    assert [key.id async for key in client.keys.all(customer_id="acme")] == sorted(
        [made.id, turned.id]
    )
    yield "listKeys"
    assert (await client.keys.revoke(turned.id)).state == "revoked"
    yield "revokeKey"
    newest = [entry.action async for entry in client.audit.all(object_id=turned.id)]
    assert len(newest) >= 1
    yield "listAudit"


async def _waits(client):
    given = await client.signals.give("paid", [12], customer_id="acme", keep_s=60)
    assert msgspec.json.decode(given.payload) == [12]
    yield "giveSignal"
    assert [one.name for one in await client.signals.list(customer_id="acme")] == ["paid"]
    yield "listSignals"
    with pytest.raises(ApiConflictError):
        await client.operations.approve("ready", "fetch")
    yield "approveOperation"
    with pytest.raises(ApiConflictError):
        await client.operations.reject("ready", "fetch", reason="no")
    yield "rejectOperation"


async def _letters(client):
    counts = await client.dead_letters.reasons(LetterSelection(kind=("exhausted",)))
    assert [(one.code, one.letters) for one in counts.reasons] == [("final_failure", 2)]
    yield "countDeadLetters"
    found = [one.id async for one in client.dead_letters.all()]
    assert found == ["b" * 20, "a" * 20]
    yield "listDeadLetters"
    assert (await client.dead_letters.get("a" * 20)).agenda_id == "gone"
    yield "getDeadLetter"
    assert (await client.dead_letters.redrive("a" * 20)).outcome == "not_possible"
    yield "redriveDeadLetter"
    assert (await client.dead_letters.discard("a" * 20)).state == "discarded"
    yield "discardDeadLetter"
    rest = LetterCommand(action="discard", filter=LetterSelection(code=("final_failure",)))
    assert (await client.dead_letters.command(rest)).outcomes == {"done": 1}
    yield "commandDeadLetters"


async def _schedules(client):
    await client.schedules.create(SCHEDULE)
    first, second = (await client.schedules.next("tick", n=2)).items
    assert second.nominal - first.nominal == timedelta(hours=1)
    yield "getScheduleNext"
    shown = await client.schedules.progress("tick")
    assert (shown.status, shown.fired, shown.last) == ("scheduled", 0, None)
    yield "getScheduleProgress"
    assert (await client.schedules.occurrences("tick")).items == ()
    yield "listOccurrences"
    assert (await client.schedules.trigger("tick")).occurrences == 1
    yield "triggerSchedule"
    assert (await client.schedules.resume("tick")).schedule_id == "tick"
    yield "resumeSchedule"
    assert (
        await client.schedules.backfill("tick", AT, AT + timedelta(hours=2))
    ).occurrences == 3
    yield "backfillSchedule"


async def _rules(client):
    await client.rules.create(RULE)
    shown = await client.rules.progress(RULE["id"])
    assert (shown.status, shown.fired, shown.fault) == ("reading", 0, "")
    yield "getRuleProgress"
    tested = await client.rules.test(RULE["id"], {"value": {}})
    assert (tested.matches, tested.hops) == (True, 1)
    yield "testRule"


async def _work(client):
    (pulled,) = await client.pull("files", "w1", wait=timedelta(0))
    assert pulled.agenda_id == "ready"
    yield "pullAgendas"
    assert [one.puller_id async for one in client.pullers(insight_id="files")] == ["w1"]
    yield "listPullers"
    assert (await client.heartbeat(pulled, "w1")).stop is None
    yield "renewAttempt"
    half = OperationReport(name="fetch", state="running", percent=50)
    assert (await client.report(pulled, "w1", [half])).lease_ms == 60_000
    yield "reportProgress"
    # What is new is answered once a rollup has it, and here is none.
    known = [{"name": "fetch", "type": "http"}]
    answer = await client.append(pulled, "w1", by="fetch", operations=known)
    assert answer.appended == []
    yield "reportProgress"
    made = await client.completions.token(pulled.lease_token, "fetch", within_s=60)
    yield "makeCompletionToken"
    completed = await client.completions.succeed(made.token, {"size": 7})
    assert (completed.operation, completed.outcome) == ("fetch", "succeeded")
    with pytest.raises(ApiConflictError):
        await client.completions.fail(made.token, "no")
    yield "completeOperation"
    done = OperationReport(name="fetch", state="succeeded", result={"size": 7})
    await client.complete(pulled, "w1", "succeeded", operations=[done], spent_s={"http": 1.5})
    yield "completeAttempt"


async def _service(client):
    assert (await client.health()).status == "ok"
    yield "getHealth"
    assert (await client.readiness()).parts == {"kafka": "ok", "postgres": "ok"}
    assert await client.is_ready()
    yield "getReadiness"
    assert (await client.caller()).roles
    yield "getCaller"
    assert "# HELP" in await client.metrics()
    yield "getMetrics"
    assert all("api" not in one.split() for one in (await client.doctor()).findings)
    yield "examine"
    assert (await client.document())["openapi"] == "3.1.0"
    yield "getDocument"


GROUPS = (
    _definitions,
    _templates,
    _schedules,
    _rules,
    _agendas,
    _work,
    _commands,
    _waits,
    _keys,
    _letters,
    _service,
)


async def test_every_operation_has_a_call_that_reaches_it(world):
    api, client = world
    document = await client.document()
    operations = {
        operation["operationId"]: (method.upper(), path)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    api.deliveries.by_insight["files"] = [_emitted()]
    reached = set()
    for group in GROUPS:
        api.answered.clear()
        async for name in group(client):
            assert operations[name] in api.answered, name
            reached.add(name)
            api.answered.clear()
    assert reached == operations.keys()


def _emitted():
    return EmittedAgenda(
        agenda_id="ready",
        insight_id="files",
        customer_id="acme",
        attempt=1,
        accepted_at=AT,
        emitted_at=AT,
        lease_ms=60_000,
        agenda=Raw(msgspec.json.encode({"id": "ready", **AGENDA})),
    )
