"""Forms made of templates: what they ask, send, and show again if it is refused."""

import re
from html import unescape

import pytest
from api_fakes import open_api
from attack_world import open_world
from console_viewer import console
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.console.pages.submit import MAX_FIELDS, form_fields
from pop_stream.model.identity import Role
from pop_stream.model.template import AgendaTemplate

EVIL = "<script>alert(1)</script>{{ 7*7 }}'\"--><svg onload=x>"
FORM = "/ui/submit?template_id=cut"
TEMPLATE = AgendaTemplate.model_validate(
    {
        "id": "cut",
        "title": EVIL,
        "params": {
            "codec": {"type": "string", "default": "h265"},
            "loud": {"type": "boolean", "description": EVIL},
            "size": {"type": "integer", "required": True},
        },
        "payload_schema": {
            "type": "object",
            "required": ["reel"],
            "properties": {
                "reel": {"type": "string", "minLength": 2, "title": EVIL},
                "seconds": {"type": "number", "maximum": 60},
                "kind": {"enum": ["teaser", 7, None]},
                "notes": {"type": "object"},
            },
        },
        "agenda": {
            "customer_id": "acme",
            "operations": [
                {"name": "only", "type": "http", "payload": "@<pop.payload::/reel>"},
            ],
        },
    }
)
GOOD = {
    "params.size": "3",
    "params.loud": "true",
    "payload.reel": "the reel",
    "payload.seconds": "1,5",
    "payload.kind": '"teaser"',
    "payload.notes": '{"a": [1]}',
    "payload": '{"more": true, "reel": "of the rest"}',
    "priority": "2",
}


@pytest.fixture
async def api():
    async with open_api() as opened:
        await opened.call("POST", "/v1/agenda-templates", TEMPLATE.model_dump(mode="json"))
        yield opened


async def test_templates_lead_to_their_forms(browser):
    status, text = await browser.get("/ui/submit")
    assert (status, 'href="/ui/submit?template_id=cut"' in text) == (200, True)
    assert "<script>alert" not in text


async def test_a_form_asks_for_parameters_payload_and_fields_of_the_agenda(browser):
    status, text = await browser.get(FORM)
    assert status == 200
    names = re.findall(r'<(?:input|select|textarea) id="f-[^"]*" name="([^"]*)"', text)
    assert names == [
        "params.codec", "params.loud", "params.size", "payload.reel", "payload.seconds",
        "payload.kind", "payload.notes", "payload", "customer_id", "title", "priority", "hold",
    ]  # fmt: skip
    assert "if left empty: h265" in text
    assert "if left empty: acme" in text
    assert "<script>alert" not in text
    assert "<svg onload" not in text


async def test_what_the_form_says_is_submitted_under_the_id_that_it_has(api, browser):
    status, text = await browser.submit(FORM, "/ui/submit", **GOOD)
    assert (status, "It is accepted" in text) == (200, True)
    (record,) = api.published
    agenda = record.get("agenda", record)
    assert agenda["priority"] == 2
    assert agenda["operations"][0]["payload"] == "the reel"
    assert agenda["template"]["id"] == "cut"
    assert browser.answered_at == f"/ui/agendas/{agenda['id']}?did=submit"


async def test_a_form_that_is_sent_twice_is_the_same_submission(api, browser):
    _, text = await browser.get(FORM)
    form = text[text.index('action="/ui/submit"') :]
    hidden = dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form))
    for _ in range(2):
        await browser.post("/ui/submit", **hidden | GOOD)
        assert browser.answered_at == f"/ui/agendas/{hidden['id']}?did=submit"
    first, *others = api.published
    assert [one | {"trace": None} for one in others] == [first | {"trace": None}] * len(others)


async def test_what_is_accepted_under_the_id_already_is_not_submitted_as_another(api, browser):
    _, text = await browser.get(FORM)
    form = text[text.index('action="/ui/submit"') :]
    hidden = dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form))
    await browser.post("/ui/submit", **hidden | GOOD)
    status, text = await browser.post("/ui/submit", **hidden | GOOD | {"priority": "9"})
    assert (status, "Not submitted" in text, len(api.published)) == (409, True, 1)


def test_a_property_without_a_name_is_not_the_rest_of_the_payload():
    schema = {"properties": {"": {"type": "string"}}}
    template = TEMPLATE.model_copy(update={"payload_schema": schema})
    named, rest = [
        one for one in form_fields(template, is_operator=False) if one.part == "payload"
    ]
    assert (named.key, rest.key) == ("", None)


async def test_what_is_refused_stands_at_its_field_with_all_that_was_typed(api, browser):
    wrong = GOOD | {"payload.seconds": "99", "params.size": "much", "payload.reel": EVIL}
    status, text = await browser.submit(FORM, "/ui/submit", **wrong)
    assert (status, api.published) == (422, [])
    faults = dict(re.findall(r'id="(f-[\d-]+)-fault"><p>([^<]*)</p>', text))
    fields = {name: mark for mark, name in re.findall(r'id="(f-[\d-]+)" name="([^"]*)"', text)}
    assert set(faults) == {fields["payload.seconds"], fields["params.size"]}
    assert "must be of type integer" in faults[fields["params.size"]]
    for name in ("payload.reel", "payload.seconds", "params.size"):
        typed = re.search(rf'name="{name}"[^>]* value="([^"]*)"', text)
        assert unescape(typed[1]) == wrong[name]
    assert '<option value="2" selected>' in text
    assert "<script>alert" not in text


async def test_what_belongs_to_no_field_is_said_on_top(browser):
    wrong = GOOD | {"payload": "", "payload.reel": "", "payload.seconds": "x"}
    status, text = await browser.submit(FORM, "/ui/submit", **wrong)
    assert status == 422
    assert "is a required property" in unescape(text)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("payload.notes", '{"a": ', "is no JSON"),
        ("payload", "[1]", "must be a JSON object"),
        ("payload", "[" * 20_000, "is no JSON"),
        ("payload.notes", "NaN", "is no JSON"),
    ],
)
async def test_text_that_is_no_json_is_refused_at_its_field(api, browser, name, value, says):
    status, text = await browser.submit(FORM, "/ui/submit", **GOOD | {name: value})
    assert (status, says in text, api.published) == (422, True, [])


async def test_a_template_that_is_not_there_is_not_found(browser):
    assert (await browser.get("/ui/submit?template_id=none"))[0] == 404


ODD = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([]) | st.just({})
)
PROPERTIES = st.dictionaries(
    st.text(max_size=5),
    ODD | st.fixed_dictionaries({}, optional={"type": ODD, "enum": ODD, "title": ODD}),
    max_size=4,
)


@given(
    st.none()
    | st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "properties": ODD | PROPERTIES,
            "required": ODD | st.lists(st.text(max_size=5), max_size=2),
            "additionalProperties": ODD,
        },
    )
)
def test_every_schema_has_a_form_whose_fields_have_names_of_their_own(schema):
    template = TEMPLATE.model_copy(update={"payload_schema": schema})
    names = [one.name for one in form_fields(template, is_operator=False)]
    assert len(names) == len(set(names))
    assert any(one.startswith("payload") for one in names)


def test_a_schema_with_too_many_properties_has_one_field_for_all():
    properties = {f"p{one}": {} for one in range(MAX_FIELDS + 1)}
    template = TEMPLATE.model_copy(update={"payload_schema": {"properties": properties}})
    fields = form_fields(template, is_operator=False)
    assert [one.name for one in fields if one.part == "payload"] == ["payload"]


async def test_only_whoever_may_submit_is_offered_it():
    async with open_world() as world, console(world, signs_in=True) as browser:
        for who, may in ((("acme", Role.READ), False), ((None, Role.ADMIN), True)):
            await browser.sign_in(world.tokens[who])
            _, text = await browser.get("/ui/agendas")
            assert ('href="/ui/submit"' in text) is may
            status, text = await browser.get("/ui/submit")
            assert status == (200 if may else 403)
            if not may:
                assert "needs the role submit" in text
