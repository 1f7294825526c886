"""A puller in a process of its own, whose operations run as Jobs of some cluster."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

PROGRAM = """
import sys
from pathlib import Path
from pop_stream.puller import Puller
from pop_stream.puller.executors import RunLimits, add_executor
from pop_stream.puller.executors.kubernetes import (
    JobRules, KubernetesExecutor, from_kubeconfig,
)

puller = Puller("media")
executor = KubernetesExecutor(JobRules(images=["acme/*"]), from_kubeconfig(Path(sys.argv[1])))
add_executor(puller.handlers, "job", executor, limits=RunLimits(poll_s=0.1))
puller.run()
"""


def kubeconfig(folder, url, *, token, namespace, **cluster):
    """A file in this folder for one who has this token."""
    user = {"name": "one", "user": {"token": token}}
    context = {"cluster": "here", "user": "one", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": url, **cluster}}],
        "users": [user],
        "contexts": [{"name": "here", "context": context}],
        "current-context": "here",
    }
    file = folder / f"{token}.{namespace}.json"
    file.write_text(json.dumps(config))
    return file


@asynccontextmanager
async def job_puller(settings, access):
    """The puller, which is killed at the end; `access` is its kubeconfig."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(access),
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "POP_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
            "POP_TOPIC_PREFIX": settings.topic_prefix,
            "POP_API_URL": settings.api_url,
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
