"""The fixed work of a golden run: what is submitted, commanded, pulled and reported.

Each step waits for what it needs, so that what the system does of it is the same in each run,
and only its times differ. Instants are far enough away for a machine that is in use.
"""

import asyncio
from datetime import UTC, datetime
from time import time_ns
from typing import Final

from pop_stream.lab.golden.world import GoldenPeer, GoldenWorld, Json, operation, until

DEFINITIONS: Final = """
[customers.anna]
weight = 2
[customers.bruno]
[customers.carla]
weight = 0.5
max_in_flight = 4
[pools.shared]
max_in_flight = 50
[insights.general]
mappers = { operation_types = ["noop", "sleep", "http", "command", "append"] }
partitions = 2
lease_ms = 600000
max_attempts = 2
backoff = { first_s = 0.5, jitter = 0.0 }
"""
BY_HAND: Final = {
    "partitions": 1,
    "lease_ms": 600_000,
    "backoff": {"first_s": 0.5, "jitter": 0},
}
TEMPLATE: Final = {
    "id": "letter",
    "params": {
        "to": {"type": "string", "required": True},
        "copies": {"type": "integer", "default": 2},
    },
    "static_params": {"from": {"city": "Bonn"}},
    "payload_schema": {"type": "object", "required": ["text"]},
    "agenda": {
        "customer_id": "anna",
        "operations": [
            {
                "name": "write",
                "type": "noop",
                "payload": "@<pop.payload::/text>, @<from::/city>",
            },
            {
                "name": "print",
                "type": "noop",
                "payload": {"to": "@<to>", "n": "@<copies>", "of": "@<write.out>"},
            },
        ],
    },
}
BRIEF_MS: Final = 5_000
_DONE: Final = {"name": "do", "state": "succeeded", "result": {"pages": 1}}
COMPLETIONS: Final[Json] = {
    "good": {"outcome": "succeeded", "spent_s": {"manual.work": 2}, "operations": [_DONE]},
    "again": {"outcome": "failed", "message": "try again", "spent_s": {"manual.work": 1}},
    "stop": {"outcome": "stopped", "spent_s": {"manual.work": 1}},
}
ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "expired", "refused"})


def agenda(agenda_id: str, *operations: Json, customer: str = "anna", **more: Json) -> Json:
    """An agenda; of one operation that does nothing, unless others are given."""
    work = [*operations] or [operation("only", payload={"from": agenda_id})]
    return {"id": agenda_id, "customer_id": customer, "operations": work, **more}


def after(seconds: float) -> str:
    """The instant in so many seconds."""
    return datetime.fromtimestamp(time_ns() / 1e9 + seconds, UTC).isoformat()


async def define(world: GoldenWorld) -> None:
    """What the file does not define, over HTTP."""
    for one, more in (("manual", {}), ("fair", {}), ("brief", {"lease_ms": BRIEF_MS})):
        wanted = {"id": one, "mappers": {"operation_types": [f"{one}.work"]}, **BY_HAND, **more}
        await world.post(f"define-{one}", "insights", wanted)
    dora = {"id": "dora", "paused": True, "max_ready": 2}
    await world.post("define-dora", "customers", dora)
    await world.post("define-letter", "agenda-templates", TEMPLATE)
    await world.post("define-badly", "customers", {"id": "erna", "weight": -1})
    await world.call("change-fair", "PATCH", "insights/fair", {"max_in_flight": 1})


async def submit_over_kafka(world: GoldenWorld) -> None:
    """Sound and unsound records, and a list; the first has no id, and gets one of its place."""
    nameless = agenda("", customer="bruno")
    del nameless["id"]
    await world.write(nameless, partition=0)
    await world.until_state(ENDED, "0-0-0")
    await world.write({**nameless, "title": "by key"}, key="k-key")
    await world.write([agenda("k-list-1"), agenda("k-list-2", customer="carla")])
    payload = {"payload": {"text": "Hi"}, "params": {"to": "you"}}
    await world.write({"template_id": "letter", "id": "k-letter", **payload}, key="k-letter")
    await world.write(b"\x00 no JSON", key="k-unreadable", partition=1)
    newer = [("pop-schema", b"99")]
    await world.write(agenda("k-newer"), key="k-newer", headers=newer, partition=1)
    await world.write(agenda("k-bad", operation("a", depends_on=["b"])), partition=1)
    await world.write(agenda("k-nowhere", operation("a", "unknown.work")), partition=1)
    world.agendas |= {
        "0-0-0",
        "k-key",
        "k-list-1",
        "k-list-2",
        "k-letter",
        "k-bad",
        "k-nowhere",
    }


async def submit_over_http(world: GoldenWorld) -> None:
    """Several customers, a graph, a template, webhooks; and what is refused."""
    several = [
        agenda(f"s-{n}", customer=one, priority=1 + n, link_id="six")
        for n, one in enumerate(("anna", "bruno", "carla", "anna", "bruno", "carla"))
    ]
    world.agendas |= {one["id"] for one in several}
    await world.post("list", "agendas", [*several, agenda("x", operation("a", "unknown.work"))])
    await world.post("refused", "agendas", agenda("y", operation("a", "noop", "@<b.out>")))
    graph = graph_of(world.peer)
    await world.submit("dag", graph)
    await world.submit("dag-again", graph)
    await world.submit("dag-otherwise", {**graph, "title": "Another"})
    letter = "agenda-templates/letter"
    given = {"payload": {"text": "Hello"}, "params": {"to": "Ada"}, "id": "h-letter"}
    await world.post("preview", f"{letter}/preview", given)
    await world.post("run", f"{letter}/run", {**given, "priority": 2})
    await world.post("run-badly", f"{letter}/run", {"payload": {}, "params": {}})
    world.agendas.add("h-letter")
    for name in ("taken", "gone"):
        url = f"{world.peer.url}/{name}"
        await world.submit(f"webhook-{name}", agenda(f"c-{name}", callback_url=url))


def graph_of(peer: GoldenPeer) -> Json:
    """An agenda whose operations wait for, refer to and append one another."""
    extra = operation("extra", payload="@<join.out::/left/n>", depends_on=["join"])
    right = "id @<pop.agendaId>: @<root.out::/n/1/deep>, @<root.out::/no?none>"
    both = {"left": "@<left.out>", "right": "@<right.out>"}
    return agenda(
        "dag",
        operation("root", payload={"n": [1, {"deep": "x"}]}),
        operation("left", payload={"n": "@<root.out::/n/0>"}),
        operation("right", payload=right),
        operation("join", payload=both, depends_on=["root"]),
        operation("more", "append", {"operations": [extra]}, depends_on=["root"]),
        peer.operation("web", "/web", method="POST", json={"a": 1}),
        title="A graph",
        params={"colour": "red"},
    )


async def fail_and_rerun(world: GoldenWorld) -> None:
    """Failures of every kind, then a second life."""
    for path in ("/once", "/never"):
        second = world.peer.operation("b", path) | {"depends_on": ["a"]}
        name = path[1:]
        await world.submit(f"fails-{name}", agenda(f"f-{name}", operation("a"), second))
    forbidden = operation("a", "command", {"program": "true"})
    await world.submit("fails-finally", agenda("f-final", forbidden))
    tries = {"timeout_s": 0.2, "max_attempts": 2, "backoff": {"first_s": 0.1, "jitter": 0}}
    slow = operation("a", "sleep", {"seconds": 5}, **tries)
    await world.submit("fails-late", agenda("f-late", slow, max_attempts=1))
    await world.until_state("failed", "f-never", "f-final", "f-late")
    await world.until_state("succeeded", "f-once", "dag")
    world.peer.failures.clear()
    failed = {"state": ["failed"], "ids": ["f-never", "f-final", "f-late", "dag"]}
    again = {"action": "rerun", "filter": failed, "dry_run": True}
    await world.post("rerun-dry", "commands", again)
    await world.post("rerun-failed", "agendas/f-never/rerun", {"reason": "mended"})
    await world.post("rerun-all", "agendas/dag/rerun", {"operations": "all", "hold": True})
    await world.until_state("held", "dag")
    await world.post("rerun-release", "agendas/dag/release")
    await world.until_state("succeeded", "f-never", "dag")


async def wait_and_command(world: GoldenWorld) -> None:
    """What waits: for an instant, its release, its end; and what is stopped while it runs."""
    soon = after(12)
    await world.submit(
        "wait", agenda("w-later", not_before=soon), agenda("w-dies", hold=True, expires_at=soon)
    )
    for name, more in (("cancel", {}), ("expire", {"expires_at": after(18)})):
        blocked = world.peer.operation("wait", f"/gate-{name}", timeout_s=600)
        await world.submit(f"gate-{name}", agenda(f"g-{name}", blocked, **more))
    ids = [f"w-{name}" for name in ("go", "drop", "first", "both")]
    await world.submit("hold", *(agenda(one, hold=True) for one in ids))
    await world.until_state("held", *ids, "w-dies")
    await world.call("why-held", "GET", "agendas/w-go/why")
    await world.post("release", "agendas/w-go/release", {"reason": "now"})
    await world.post("cancel-held", "agendas/w-drop/cancel", {"reason": "not needed"})
    await world.post("reprioritise", "agendas/w-first/reprioritise", {"priority": 1, "rank": 3})
    await world.post("hold-again", "agendas/w-both/hold")
    await world.post("cancel-nothing", "agendas/nobody/cancel")
    await world.until_called("/gate-cancel", "/gate-expire")
    await world.until_state("running", "g-cancel", "g-expire")
    await world.post("cancel-running", "agendas/g-cancel/cancel", {"reason": "enough"})
    await world.until_state("cancelled", "w-drop", "g-cancel")
    await world.post("cancel-ended", "agendas/w-drop/cancel")
    many = {"action": "release", "filter": {"ids": ["w-first", "w-both", "w-drop"]}}
    await world.post("release-many", "commands", many)
    await world.until_state("succeeded", "w-go", "w-first", "w-both", "w-later")
    await world.until_state("expired", "w-dies", "g-expire")


async def meet_quota(world: GoldenWorld) -> None:
    """A paused customer that may have two agendas has a third one refused, however it comes."""
    for name in ("q-1", "q-2"):
        await world.submit_within_quota(f"quota-{name}", agenda(name, customer="dora"))
    await world.until_state("ready", "q-1", "q-2")
    await world.post("quota-q-3", "agendas", agenda("q-3", customer="dora"))
    await world.write(agenda("q-4", customer="dora"), key="q-4")
    world.agendas.add("q-4")
    await world.until_state("refused", "q-4")
    await world.post("hold-ready", "agendas/q-2/hold")
    await world.until_state("held", "q-2")
    await world.post("release-ready", "agendas/q-2/release")
    await world.until_state("ready", "q-2")
    free = {"paused": False, "max_ready": None}
    await world.call("unpause", "PATCH", "customers/dora", free)
    await world.until_state("succeeded", "q-1", "q-2")
    await world.post("resubmit", "resubmissions", {"filter": {"customer_id": ["dora"]}})
    await world.until_state("succeeded", "q-4")


async def work_by_hand(world: GoldenWorld) -> None:
    """A worker without Kafka: success, failure and another attempt, a stop."""
    for name in ("good", "again", "stop"):
        one = f"m-{name}"
        work = operation("do", "manual.work", {"for": name})
        await world.submit(f"manual-{name}", agenda(one, work))
        await world.pull(f"pull-{name}", "manual")
        await world.until_state("running", one)
        await world.report(f"heartbeat-{name}", one, 1, kind="heartbeat")
        report: Json = {"operations": [{"name": "do", "state": "running", "percent": 40}]}
        if name == "good":
            then = operation("post", "manual.work", depends_on=["do"])
            report["append"] = {"by": "do", "operations": [then]}
        await world.report(f"report-{name}", one, 1, kind="progress", body=report)
        if name == "stop":
            await world.post("cancel-manual", f"agendas/{one}/cancel")
            await until("the stop", lambda: is_stopping(world))
            await world.report("heartbeat-stopping", one, 1, kind="heartbeat")
        end = dict(COMPLETIONS[name])
        if name == "good":
            end["operations"] = [_DONE, {**_DONE, "name": "post"}]
        await world.report(f"complete-{name}", one, 1, kind="complete", body=end)
        if name == "again":
            await world.until_state(frozenset({"ready", "waiting", "emitted"}), one)
            await world.pull("pull-second", "manual")
            await world.until_running(one, 2)
            await world.report("report-outdated", one, 1, kind="heartbeat")
            end = COMPLETIONS["good"]
            await world.report("complete-second", one, 2, kind="complete", body=end)
        await world.until_state(ENDED, one)


async def is_stopping(world: GoldenWorld) -> bool:
    """Whether the worker's agenda is to stop, as far as summaries know."""
    return bool((await world.get("agendas/m-stop"))["stopping"])


async def lose_lease(world: GoldenWorld) -> None:
    """A worker that falls silent: its agenda goes to the next attempt."""
    work = operation("do", "brief.work")
    await world.submit("brief", agenda("l-silent", work))
    await world.pull("pull-and-vanish", "brief")
    second = await world.pull("pull-lost", "brief")
    await world.until_running("l-silent", second["attempt"])
    await world.report("report-late", "l-silent", 1, kind="heartbeat")
    attempt, end = second["attempt"], COMPLETIONS["good"]
    await world.report("complete-lost", "l-silent", attempt, kind="complete", body=end)
    await world.until_state("succeeded", "l-silent")


async def take_turns(world: GoldenWorld) -> None:
    """The order between customers: one is out at a time, and costs are as declared."""
    work = operation("do", "fair.work")
    await world.submit("fair-first", agenda("t-first", work, customer="erna", cost_s=1))
    await world.until_state("emitted", "t-first")
    ids = [f"t-{customer}-{n}" for customer in ("anna", "bruno", "carla") for n in range(5)]
    lot = [
        agenda(one, work, customer=one.split("-")[1], cost_s=1, priority=5 - int(one[-1]) % 2)
        for one in ids
    ]
    await world.write(lot, partition=2)
    world.agendas |= set(ids)
    await world.until_state("ready", *ids)
    order = []
    ended = {"outcome": "succeeded", "spent_s": {"fair.work": 1}, "operations": [_DONE]}
    for _ in ["t-first", *ids]:
        one = (await world.pull("turn", "fair"))["agenda_id"]
        order.append(one)
        await world.report(f"turn-{one}", one, 1, kind="complete", body=ended)
        await world.until_state("succeeded", one)
    del world.answers["turn"]
    world.answers["order"] = {
        "status": 200,
        "body": [f"{n}: {one}" for n, one in enumerate(order)],
    }


async def work_through(world: GoldenWorld) -> None:
    """All of the work, to its very end."""
    await define(world)
    await submit_over_kafka(world)
    await submit_over_http(world)
    async with asyncio.TaskGroup() as tasks:
        for part in (
            fail_and_rerun,
            wait_and_command,
            meet_quota,
            work_by_hand,
            lose_lease,
            take_turns,
        ):
            tasks.create_task(part(world))
    await world.until_state(ENDED, *sorted(world.agendas))
    await world.until_called("/taken", "/gone")
    await world.call("delete", "DELETE", "agendas/s-0")
    for insight in ("general", "manual", "brief", "fair"):
        await world.until_idle(insight)
