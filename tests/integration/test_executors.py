"""A puller whose operations run as Jobs: killed in the middle, and stopped."""

import asyncio

import pytest
from deadlines import within
from job_puller import job_puller, kubeconfig
from kubernetes_double import KubernetesDouble
from puller_world import WITHIN_S, agenda, open_world, progress, with_api, work

from pop_stream.kafka.topics import Topics
from pop_stream.model.events.lifecycle import (
    AgendaClaimed,
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaStopped,
    AgendaSucceeded,
)


@pytest.fixture
async def world(settings):
    controls = Topics(settings.topic_prefix).controls
    async with open_world(settings, controls) as opened:
        await opened.create()
        yield opened


@pytest.fixture
async def cluster(tmp_path):
    double = KubernetesDouble()
    async with double.server() as server:
        url = f"http://127.0.0.1:{server.port}"
        double.access = kubeconfig(tmp_path, url, token=double.token, namespace="farm")
        yield double


def render(does):
    return work("render", "job", payload={"image": "acme/render:1", "args": [does, "[7]"]})


def running(world, attempt):
    return any(
        event.attempt == attempt and one.message.startswith("running")
        for event in world.of(AgendaProgressed)
        for one in event.operations
    )


async def test_a_puller_that_was_killed_leaves_a_job_that_the_next_attempt_goes_on_with(
    world, cluster
):
    async with with_api(world.settings, (200, progress(2))) as (settings, _):
        await world.emit(agenda("a1", render("forever"), lease_ms=3_000))
        async with job_puller(settings, cluster.access):
            await world.until(lambda: running(world, 1))
            await world.until(lambda: world.of(AgendaHeartbeat))
        (name,) = cluster.jobs
        await world.emit(agenda("a1", render("forever"), attempt=2, run_from=1))
        async with job_puller(settings, cluster.access):
            await world.until(lambda: running(world, 2))
            assert [*cluster.jobs] == [name]
            container = cluster.jobs[name]["spec"]["template"]["spec"]["containers"][0]
            container["args"] = ["succeed", "[7]"]
            await world.until(lambda: world.of(AgendaSucceeded))
    (ended,) = world.of(AgendaSucceeded)
    assert ended.attempt == 2
    assert ended.spent_s["job"] > 0
    (operation,) = [one for one in ended.operations if one.name == "render"]
    assert name in bytes(operation.result).decode()
    assert b'"result":[7]' in bytes(operation.result)


async def test_a_cancelled_agenda_takes_its_job_along(world, cluster):
    await world.emit(agenda("a1", render("forever")))
    async with job_puller(world.settings, cluster.access):
        await world.until(lambda: world.of(AgendaClaimed) and running(world, 1))
        await world.stop("a1")
        await world.until(lambda: world.of(AgendaStopped))
        async with within(WITHIN_S):
            while cluster.jobs:
                cluster.step()
                await asyncio.sleep(0.02)
    (stopped,) = world.of(AgendaStopped)
    assert stopped.spent_s["job"] >= 0
