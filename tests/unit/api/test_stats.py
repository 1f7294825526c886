"""Stats and usage over HTTP: parameters, and whose rows a caller sees."""

import pytest
from api_fakes import open_api

from pop_stream.api.stats.endpoints import _own
from pop_stream.model.identity import Principal, Role


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/stats?group=shop", "group"),
        ("/v1/stats?group=hour&group=day", "group"),
        ("/v1/stats?from_at=2026-01-02T00:00:00Z&before_at=2026-01-01T00:00:00Z", "from_at"),
        ("/v1/stats?from_at=2020-01-02T00:00:00Z", "from_at"),
        ("/v1/stats?limit=0", "limit"),
        ("/v1/stats?shop=1", "shop"),
        ("/v1/usage?per=hour", "per"),
    ],
)
async def test_a_parameter_that_is_wrong_is_named(path, field):
    async with open_api() as api:
        status, problem = await api.get(path)
    assert status == 422
    assert problem["issues"][0]["field"].startswith(field)


async def test_an_empty_range_has_no_rows():
    async with open_api() as api:
        status, page = await api.get("/v1/stats")
        assert (status, page["items"], page["next"]) == (200, [], None)
        assert page["from_at"] < page["before_at"]
        status, page = await api.get("/v1/usage?per=all")
        assert (status, page["items"]) == (200, [])


def test_a_customer_is_shown_its_own_rows_only():
    acme = Principal(name="k", customer_id="acme", roles=frozenset({Role.READ}))
    assert _own((), acme) == ("acme",)
    assert _own(("acme", "globex"), acme) == ("acme",)
    assert _own(("globex",), acme) == ("(nobody)",)
