"""Whatever a document of POP's holds, the import says something of it, and never breaks."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.definitions import KINDS
from pop_stream.pop_import.conversion import convert
from pop_stream.pop_import.fields import ImportOptions
from pop_stream.pop_import.objects import read_objects

FIELDS = (
    "id", "cid", "customerId", "title", "addedTime", "linkId", "isGlobal", "allowedCustomerIds",
    "resourcePoolId", "insightIds", "billingCode", "queueName", "queueSize", "mappers",
    "schedulingAlgorithm", "staticParameters", "agenda", "operations", "params", "payload",
    "agendaTemplateId", "agendaId", "processingState", "progressId", "name", "type",
    "dependsOn",
    "maximumAttempts", "doNotRun", "operationType", "paramMap", "agenda.operation.generator",
    "operationsJsonPointer", "all", "error", "errorResponse", "agendas", "logOnly", "colour",
)  # fmt: skip
TEXTS = st.sampled_from(
    [
        "updateAgenda", "RoundRobin", "COMPLETE", "a", "b", "7", "@<a.out>", "@@<b.out::/x?>",
        "@<pop.payload::/x>", "a,b", "http://x/y", "=", "k=v", "", " ", "\x00", "\ud800", "窯",
    ]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.text(max_size=8)
NODES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | TEXTS, inner, max_size=6)
    ),
    max_leaves=25,
)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"name": TEXTS | LEAVES, "type": TEXTS | LEAVES},
        optional={"payload": NODES, "params": NODES, "id": NODES},
    ),
    max_size=3,
)
OBJECTS = NODES | st.fixed_dictionaries(
    {"id": TEXTS},
    optional={**{name: NODES for name in FIELDS if name != "id"}, "operations": OPERATIONS},
)


def text_of(value):
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def first_name(path):
    return path.replace("[", ".").partition(".")[0]


@given(documents=st.lists(OBJECTS.map(text_of) | st.binary(max_size=40), max_size=4))
def test_any_document_is_converted_or_refused(documents):
    found, unreadable = read_objects([("pop.json", one) for one in documents])
    imported = convert(found, ImportOptions(customer="c"))
    assert len(imported) == len(found)
    for one in imported:
        json.dumps(one.content, allow_nan=False).encode()
        "\n".join(map(str, (one.origin, *one.fates))).encode()
        shown = {first_name(fate.field) for fate in one.fates}
        assert one.origin.kind is None or set(map(first_name, one.origin.fields)) <= shown
        if one.kind == "agenda" and one.content:
            parse_agenda(one.content)
        elif one.content and one.kind != "run":
            KINDS[one.kind].model_validate(one.content)
        else:
            assert one.fates
    for source, issue in unreadable:
        f"{source}: {issue}".encode()
    again, _ = read_objects([("pop.json", one) for one in documents])
    assert convert(again, ImportOptions(customer="c")) == imported
