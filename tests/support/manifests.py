"""What `make deploy-render` made of the overlays and the chart, and hands to look into it."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pop_stream.model.definitions_file import parse_definitions_file
from pop_stream.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "pop-stream"
LASTING = ("api", "ingest", "scheduler", "rollup", "puller")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

Object = Mapping[str, Any]


@cache
def rendered(name: str) -> Sequence[Object]:
    """The objects of a file of `deploy/rendered`; not to be changed."""
    return [*yaml.safe_load_all((DEPLOY / "rendered" / f"{name}.yaml").read_text())]


def named(objects: Sequence[Object], kind: str, name: str) -> Any:
    [found] = [
        one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name
    ]
    return found


def workload(objects: Sequence[Object], name: str) -> Any:
    kinds = {"scheduler": "StatefulSet", "migrate": "Job"}
    return named(objects, kinds.get(name, "Deployment"), f"pop-stream-{name}")


def pod(objects: Sequence[Object], name: str) -> Any:
    return workload(objects, name)["spec"]["template"]["spec"]


def container(objects: Sequence[Object], name: str) -> Any:
    [found] = pod(objects, name)["containers"]
    return found


def settings(objects: Sequence[Object], name: str) -> Mapping[str, str]:
    """The data of the ConfigMap that a part reads its settings from."""
    [source] = container(objects, name)["envFrom"]
    data: Mapping[str, str] = named(objects, "ConfigMap", source["configMapRef"]["name"])[
        "data"
    ]
    return data


def definitions(objects: Sequence[Object], name: str) -> Sequence[Any]:
    """What the file defines that a part has mounted."""
    [volume] = [one for one in pod(objects, name)["volumes"] if one["name"] == "definitions"]
    data = named(objects, "ConfigMap", volume["configMap"]["name"])["data"]
    return [*parse_definitions_file(tomllib.loads(data["definitions.toml"]))]


def secret_settings() -> set[str]:
    """Variables of settings that no ConfigMap may have."""
    return {
        f"POP_{name.upper()}"
        for name, field in Settings.model_fields.items()
        if "SecretStr" in str(field.annotation)
    }
