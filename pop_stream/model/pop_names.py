"""Names of Comcast's POP for what has another name here; errors suggest ours."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pop_stream.model.errors import Issue

_FIELDS: Final[Mapping[str, str]] = {
    "agendaInsight": "insight_id, which is answered and never sent",
    "agendaTemplateId": "template_id",
    "allowedCustomerIds": "allowed, with visibility allowed",
    "cid": "the header X-Correlation-Id",
    "customerId": "customer_id of an agenda, owner of a definition",
    "defaultInsight": "default_insight, in params of an agenda",
    "dependsOn": "depends_on of an operation, a list",
    "doNotRun": "hold",
    "externalId": "external_id in params",
    "external_id": "external_id in params",
    "isGlobal": "visibility global",
    "linkId": "link_id",
    "maximumAttempts": "max_attempts",
    "progressId": "link_id, which joins agendas that keep their own progress",
    "queueName": "the topic pop.insight.<id>",
    "queueSize": "target",
    "resourcePoolId": "pool",
    "schedulingAlgorithm": "algorithm, with round_robin or fifo",
    "staticParameters": "static_params",
    "operationName": "operation_names",
    "operationType": "operation_types",
    "paramMap": "params",
}

_AGENDA_PARAMS: Final[Mapping[str, str]] = {
    "doNotRun": "the agenda's field hold",
    "maximumAttempts": "the agenda's field max_attempts",
}
_OPERATION_PARAMS: Final[Mapping[str, str]] = {
    "dependsOn": "the operation's field depends_on, a list",
    "agenda.operation.generator": "an operation of type append with this one's result",
}


def replacement_for(field: str) -> str | None:
    """What stands here for a field of POP's; None if there is none of that name."""
    return _FIELDS.get(field)


def legacy_param_issues(
    of_agenda: Mapping[str, object], of_operations: Iterable[Mapping[str, object]]
) -> Iterator[Issue]:
    """Params that steered something in POP and would be ignored here in silence."""
    yield from _issues(of_agenda, _AGENDA_PARAMS, "params")
    for index, params in enumerate(of_operations):
        if params:
            yield from _issues(params, _OPERATION_PARAMS, f"operations[{index}].params")


def _issues(
    params: Mapping[str, object], moved: Mapping[str, str], path: str
) -> Iterator[Issue]:
    for name in sorted(params.keys() & moved.keys()):
        message = f"steers nothing as a param; use {moved[name]}"
        yield Issue(f"{path}.{name}", str(params[name])[:200], message)
