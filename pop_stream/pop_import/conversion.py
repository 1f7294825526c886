"""Makes our definitions of POP's customers, resource pools, insights and templates."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from pop_stream.model.definitions import KINDS, MAX_IN_FLIGHT
from pop_stream.model.errors import SubmissionError
from pop_stream.model.validation import issues_of
from pop_stream.pop_import.fields import (
    Became,
    DefinedKind,
    FieldFate,
    Fields,
    ImportedObject,
    ImportOptions,
    Names,
    TargetKind,
    whole_number,
)
from pop_stream.pop_import.objects import PopKind, PopObject
from pop_stream.pop_import.workflow import (
    CONVERTED_TYPES,
    convert_agenda,
    convert_run,
    template_agenda,
)

_ALGORITHMS: Final[Mapping[str, str]] = {
    "roundrobin": "round_robin",
    "firstinfirstout": "fifo",
}
_MOST_TARGET: Final = 100_000
_MAPPERS: Final[Mapping[str, tuple[str, str]]] = {
    "operationname": ("operationName", "operation_names"),
    "operationtype": ("operationType", "operation_types"),
    "parammap": ("paramMap", "params"),
}
_NOT_TAKEN: Final[Mapping[PopKind, str]] = {
    "AgendaProgress": "progress is made of what runs here; what has ended in POP is not run",
    "OperationProgress": "progress is made of what runs here",
    "ReadyAgenda": "what is ready is decided here; import the agenda itself",
    "InsightScheduleInfo": "POP's place in its round; shares are counted here from the start",
    "TransformRequest": "POP itself had no handler for it; import a template and run that",
}
_PLURALS: Final[Mapping[PopKind, str]] = {"Run": "Requests to run a template"}
_OUR_FIELDS: Final[Mapping[str, str]] = {
    "algorithm": "schedulingAlgorithm",
    "allowed": "allowedCustomerIds",
    "mappers": "mappers",
    "owner": "customerId",
    "pool": "resourcePoolId",
    "static_params": "staticParameters",
    "target": "queueSize",
}

Converter = Callable[[Fields, Names, ImportOptions], dict[str, Any]]


def convert(objects: Sequence[PopObject], options: ImportOptions) -> tuple[ImportedObject, ...]:
    """What each object becomes here, in their order, with the fate of every field.

    Ids that do not fit here are made to fit, the same way each time; two that become the same
    are refused. An agenda without an id is given one that is made of its content, so that it
    is known when it is imported again.
    """
    names = Names(options.renamed)
    ended = {agenda_id for one in objects if (agenda_id := _ended_agenda(one)) is not None}
    converted = [_convert(one, names, options, ended) for one in objects]
    return tuple(_without_twins(converted))


def _convert(
    one: PopObject, names: Names, options: ImportOptions, ended: set[str]
) -> ImportedObject:
    fields = Fields(one.fields)
    if one.kind is None:
        message = "the fields do not show what it is; say so with --as KIND"
        fields.refuse("id", message, value=one.fields.get("id"))
        return fields.imported(one)
    if why := _NOT_TAKEN.get(one.kind):
        fields.drop_all(why)
        return fields.imported(one)
    if one.kind == "Agenda" and one.fields.get("id") in ended:
        fields.drop_all("its progress says that it has ended in POP")
        return fields.imported(one)
    for name in ("addedTime", "updatedTime"):
        fields.drop(name, "stamped anew")
    kind: TargetKind
    if one.kind in _SUBMISSIONS:
        kind, converter = _SUBMISSIONS[one.kind]
        content = converter(fields, names, options)
    else:
        kind, converter = _DEFINITIONS[one.kind]
        content = converter(fields, names, options)
        if not fields.is_refused:
            content = _sound(kind, content, fields)
    fields.leave_unknown(_PLURALS.get(one.kind, f"{one.kind}s"), strict=options.strict)
    return fields.imported(one, kind, content)


def _without_twins(found: Sequence[ImportedObject]) -> Iterator[ImportedObject]:
    """What stands in the documents twice is taken once, and refused if it is not the same."""
    seen: dict[tuple[str | None, str], ImportedObject] = {}
    for one in found:
        first = seen.setdefault((one.kind, one.id), one) if one.content else one
        if first is one:
            yield one
        elif first.content == one.content:
            why = f"the same stands in {first.origin} already"
            yield replace(one, content={}, fates=(*one.fates, _of_id(one, "dropped", why)))
        else:
            why = f"something else is called so in {first.origin}; remove one"
            yield replace(one, content={}, fates=(*one.fates, _of_id(one, "refused", why)))


def _of_id(one: ImportedObject, became: Became, why: str) -> FieldFate:
    return FieldFate("id", one.id, became, why=why)


def _ended_agenda(one: PopObject) -> str | None:
    """The agenda that an object of POP's says has ended; None if it says so of none."""
    is_over = one.kind == "AgendaProgress" and one.fields.get("processingState") == "COMPLETE"
    agenda_id = one.fields.get("agendaId")
    return agenda_id if is_over and isinstance(agenda_id, str) else None


def _sound(kind: DefinedKind, content: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """The definition as it is sent; what is wrong with it is noted under POP's names."""
    try:
        definition = KINDS[kind].model_validate(content)
    except ValidationError as error:
        for issue in issues_of(error, document=kind):
            outer, dot, inner = issue.field.partition(".")
            field = f"{_OUR_FIELDS.get(outer, outer)}{dot}{inner}"
            fields.refuse(field, issue.message, value=issue.value)
        return {}
    return definition.model_dump(mode="json", exclude_unset=True)


def _customer(fields: Fields, names: Names, _: ImportOptions) -> dict[str, Any]:
    content = _named(fields, names, "customer")
    owner = fields.take("customerId")
    if owner is not None:
        same = owner == fields.given("id")
        why = "the same as id" if same else "POP looked a customer up by its id alone"
        fields.dropped("customerId", owner, why)
    if pool := _reference(fields, names, "resourcePoolId", "pool"):
        content["pool"] = pool
    fields.drop("billingCode", "nothing ever read it")
    return content


def _pool(fields: Fields, names: Names, options: ImportOptions) -> dict[str, Any]:
    content = _named(fields, names, "pool")
    fields.drop("customerId", "pools are the operator's here")
    fields.drop("insightIds", "made of the insights that name the pool")
    capacity = options.pool_capacity or MAX_IN_FLIGHT
    why = "as was asked for" if options.pool_capacity else "no limit, as in POP"
    fields.mapped("capacity", None, f"max_in_flight {capacity}", why)
    content["max_in_flight"] = capacity
    return content


def _insight(fields: Fields, names: Names, _: ImportOptions) -> dict[str, Any]:
    content = _named(fields, names, "insight") | _sharing(fields, names)
    if pool := _reference(fields, names, "resourcePoolId", "pool"):
        content["pool"] = pool
    fields.drop("queueName", f"its topic is pop.insight.{content.get('id', '<id>')}")
    content |= _queue(fields)
    algorithm = fields.take("schedulingAlgorithm")
    if algorithm is not None:
        if ours := _ALGORITHMS.get(str(algorithm).casefold()):
            content["algorithm"] = ours
            fields.mapped("schedulingAlgorithm", algorithm, f"algorithm {ours}")
        else:
            message = "is none of POP's algorithms; give RoundRobin or FirstInFirstOut"
            fields.refuse("schedulingAlgorithm", message, value=algorithm)
    mappers = fields.take("mappers")
    if mappers is not None:
        content["mappers"] = _mappers(mappers, fields)
    return content


def _queue(fields: Fields) -> dict[str, Any]:
    size = fields.take("queueSize")
    if size is None:
        return {}
    whole = whole_number(size)
    if whole is None or not 0 <= whole <= _MOST_TARGET:
        message = f"must be a whole number of 0 to {_MOST_TARGET:,}; correct it"
        fields.refuse("queueSize", message, value=size)
        return {}
    if whole == 0:
        fields.mapped("queueSize", size, "paused true", "POP never scheduled a size of 0")
        return {"paused": True}
    fields.mapped("queueSize", size, f"target {whole}")
    return {"target": whole}


def _mappers(mappers: object, fields: Fields) -> dict[str, list[str]]:
    content: dict[str, list[str]] = {}
    if not isinstance(mappers, Mapping):
        fields.refuse("mappers", "must be an object of lists of texts", value=mappers)
        return content
    for name, values in mappers.items():
        field = f"mappers.{name}"
        known = _MAPPERS.get(name.casefold())
        if known is None:
            has = ", ".join(pops for pops, _ in _MAPPERS.values())
            fields.refuse(field, f"POP has no such mapper; it has {has}", value=values)
        elif not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            fields.refuse(field, "must be a list of texts", value=values)
        else:
            ours, kept = known[1], values
            if ours == "operation_types":
                kept = [CONVERTED_TYPES.get(one.casefold(), one) for one in values]
            content.setdefault(ours, []).extend(kept)
            fields.mapped(field, values, f"mappers.{ours}")
    return content


def _template(fields: Fields, names: Names, options: ImportOptions) -> dict[str, Any]:
    content = _named(fields, names, "template") | _sharing(fields, names)
    static = fields.take("staticParameters")
    if static is not None:
        fields.mapped("staticParameters", static, "static_params")
        content["static_params"] = static
    agenda = fields.take("agenda")
    if isinstance(agenda, Mapping):
        content["agenda"] = template_agenda(agenda, fields, names, options)
    else:
        fields.refuse("agenda", "must be an object: the agenda, with tokens", value=agenda)
    fields.drop("params", "nothing ever read them")
    fields.drop("isDefaultTemplate", "nothing ever read it")
    return content


def _named(fields: Fields, names: Names, kind: str) -> dict[str, Any]:
    """Id and title, which every definition has."""
    fields.drop("cid", "the request that stored it")
    content: dict[str, Any] = {}
    title = fields.take("title")
    if title is not None:
        content["title"] = title
        fields.mapped("title", title, "title")
    given = fields.take("id")
    raw = title if given is None else given
    if not isinstance(raw, str):
        remedy = "must be a text; give it, or a title of which one can be made"
        fields.refuse("id", remedy, value=raw)
        return content
    try:
        content["id"] = names.of(kind, raw)
    except SubmissionError as error:
        fields.refuse("id", error.issues[0].message, value=raw)
        return content
    why = "made of the title" if given is None else ""
    fields.mapped("id", given, f"id {content['id']}", why)
    return content


def _sharing(fields: Fields, names: Names) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if owner := _reference(fields, names, "customerId", "customer", ours="owner"):
        content["owner"] = owner
    everyone = fields.take("isGlobal")
    if everyone is not None and not isinstance(everyone, bool):
        fields.refuse("isGlobal", "must be true or false", value=everyone)
    elif everyone is not None:
        content["visibility"] = "global" if everyone else "owner"
        fields.mapped("isGlobal", everyone, f"visibility {content['visibility']}")
    allowed = fields.take("allowedCustomerIds")
    if allowed is None:
        pass
    elif not isinstance(allowed, list) or not all(isinstance(one, str) for one in allowed):
        fields.refuse("allowedCustomerIds", "must be a list of customers' ids", value=allowed)
    elif everyone is True or not allowed:
        why = "it is global" if allowed else "it is empty"
        fields.dropped("allowedCustomerIds", allowed, why)
    else:
        content["visibility"] = "allowed"
        content["allowed"] = [*_ids(allowed, fields, names)]
        fields.mapped("allowedCustomerIds", allowed, "allowed, with visibility allowed")
    return content


def _ids(allowed: Sequence[str], fields: Fields, names: Names) -> Iterable[str]:
    for place, one in enumerate(allowed):
        try:
            yield names.of("customer", one)
        except SubmissionError as error:
            fields.refuse(f"allowedCustomerIds[{place}]", error.issues[0].message, value=one)


def _reference(
    fields: Fields, names: Names, field: str, kind: str, *, ours: str = ""
) -> str | None:
    """Our id of what a field refers to."""
    value = fields.take(field)
    if value is None:
        return None
    try:
        found = names.of(kind, value)
    except SubmissionError as error:
        fields.refuse(field, error.issues[0].message, value=value)
        return None
    fields.mapped(field, value, f"{ours or kind} {found}")
    return found


_DEFINITIONS: Final[Mapping[PopKind, tuple[DefinedKind, Converter]]] = {
    "Customer": ("customer", _customer),
    "ResourcePool": ("pool", _pool),
    "Insight": ("insight", _insight),
    "AgendaTemplate": ("template", _template),
}
_SUBMISSIONS: Final[Mapping[PopKind, tuple[TargetKind, Converter]]] = {
    "Agenda": ("agenda", convert_agenda),
    "Run": ("run", convert_run),
}
