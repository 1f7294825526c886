"""Admission policies over HTTP: denied or held, alone, in lists and as a template's run."""

from dataclasses import replace

from api_fakes import agenda, open_api

from pop_stream.model.definitions import Customer, Insight, Mappers
from pop_stream.model.insight_options import Ranker
from pop_stream.policy.ingress.policies import Allow, Defer


def define(api, **fields):
    """The insight of all submissions, with such fields."""
    insight = Insight(id="files", mappers=Mappers(operation_types=("http",)), **fields)
    current = api.definitions.current
    api.definitions.current = replace(current, insights={"files": insight})


async def test_what_is_denied_is_422_with_its_reason_and_is_not_published():
    async with open_api() as api:
        define(api, needs_labels=("level-2",))
        status, body = await api.submit(agenda())
        assert (status, body["code"]) == (422, "admission_denied")
        assert body["issues"][0]["field"] == "customer_id"
        assert "level-2" in body["issues"][0]["message"]
        acme = Customer(id="acme", labels=("level-2",))
        api.definitions.current = replace(api.definitions.current, customers={"acme": acme})
        assert (await api.submit(agenda()))[0] == 202
        assert len(api.published) == 1


async def test_each_agenda_of_a_list_is_judged_by_itself():
    async with open_api() as api:
        define(api, payload_schemas={"http": {"type": "object"}})
        bad = agenda(operations=[{"name": "a", "type": "http", "payload": 7}])
        good = agenda(operations=[{"name": "a", "type": "http", "payload": {}}])
        status, body = await api.submit([bad, good])
        assert (status, [one["status"] for one in body["results"]]) == (202, [422, 202])
        assert body["results"][0]["issues"][0]["field"].startswith("operations[0].payload")


async def test_a_template_that_is_not_enabled_cannot_be_run_but_previewed():
    async with open_api() as api:
        template = {"id": "t", "agenda": agenda(), "enabled": False}
        assert (await api.call("POST", "/v1/agenda-templates", template))[0] == 201
        status, body, _ = await api.call("POST", "/v1/agenda-templates/t/run", {})
        assert (status, body["code"]) == (422, "admission_denied")
        path = "/v1/agenda-templates/t/preview"
        status, body, _ = await api.call("POST", path, {})
        assert (status, body["insight_id"]) == (200, "files")
        assert [one["field"] for one in body["issues"]] == ["template_id"]


async def test_an_explanation_says_what_a_policy_would():
    async with open_api() as api:
        define(api, enabled=False)
        status, body, _ = await api.call("POST", "/v1/placement/explain", agenda())
        assert (status, body["insight_id"]) == (200, "files")
        assert [one["field"] for one in body["issues"]] == ["insight_id"]


async def test_the_rank_that_an_insight_gives_is_published_with_the_agenda():
    async with open_api(rankers={"mine": lambda agenda, at: 70_000}) as api:
        define(api, ranker=Ranker(by="entry_point", name="mine"))
        assert (await api.submit(agenda()))[0] == 202
        assert (await api.submit(agenda(rank=3)))[0] == 202
        assert [one["rank"] for one in api.published] == [70_000, 3]


class AtNight:
    """An operator's policy that holds the work of one customer."""

    def decide(self, request):
        return Defer("waits for the night") if request.customer.id == "acme" else Allow()


async def test_what_is_deferred_is_let_in_on_hold_with_the_reason():
    async with open_api(policies=(AtNight(),)) as api:
        assert (await api.submit(agenda()))[0] == 202
        assert (await api.submit(agenda(customer_id="other")))[0] == 202
        held, free = api.published
        assert (held["hold"], held["hold_reason"]) == (True, "waits for the night")
        assert "hold" not in free
        status, body, _ = await api.call("POST", "/v1/placement/explain", agenda())
        assert (status, body["issues"][0]["message"]) == (
            200, "it would be held: waits for the night",
        )  # fmt: skip
