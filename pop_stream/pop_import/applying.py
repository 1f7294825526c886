"""Sends what POP's objects became through the client, so that a second run changes nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from msgspec import UNSET

from pop_stream.api_models.submissions import RouteExplanation, SubmissionResult
from pop_stream.client.client import Client
from pop_stream.client.definitions import DefinitionCalls
from pop_stream.client.errors import ApiConflictError, ApiNotFoundError, ApiRefusedError
from pop_stream.model.definitions import KINDS, Insight
from pop_stream.pop_import.fields import DefinedKind, ImportedObject

Outcome = Literal["created", "changed", "unchanged", "submitted", "failed"]

IN_FORCE_WITHIN_S: Final = 10.0
"""How long to wait until the API works by definitions that were just sent."""

_LOOK_EVERY_S: Final = 0.1
_AT_ONCE: Final = 500
_ORDER: Final[Sequence[DefinedKind]] = ("pool", "insight", "customer", "template")


class Applied(NamedTuple):
    """What came of one object; `why` says why it failed."""

    one: ImportedObject
    outcome: Outcome
    why: str = ""


async def apply(client: Client, found: Sequence[ImportedObject]) -> list[Applied]:
    """Define and submit what objects became, those first that others need.

    Each definition is written only where it differs, and each agenda submitted only if the API
    does not know its id. One that fails leaves the others as they are; nothing is submitted if
    a definition fails.

    Raises:
        ApiError: If the API does not answer; what was sent until then stays.
    """
    done: list[Applied] = []
    for kind in _ORDER:
        for one in found:
            if one.kind == kind and one.content:
                done.append(await _define(client, kind, one))
    submissions = [one for one in found if one.kind in {"agenda", "run"} and one.content]
    if any(one.outcome == "failed" for one in done):
        why = "not submitted, for a definition failed; mend that and import again"
        return [*done, *(Applied(one, "failed", why) for one in submissions)]
    known: list[Applied] = []
    new: list[ImportedObject] = []
    for one in submissions:
        if await _is_known(client, one.id):
            known.append(Applied(one, "unchanged"))
        else:
            new.append(one)
    if new and any(one.outcome != "unchanged" for one in done):
        await _wait_until_in_force(client, found, new)
    return [*done, *known, *await _submit(client, new)]


async def _define(client: Client, kind: DefinedKind, one: ImportedObject) -> Applied:
    calls: DefinitionCalls[Any] = getattr(client, f"{kind}s")
    wanted = KINDS[kind].model_validate(one.content)
    try:
        kept = await calls.get(one.id)
    except ApiNotFoundError:
        kept = None
    try:
        if kept is None:
            await calls.put(one.id, one.content, if_absent=True)
            return Applied(one, "created")
        fields = {name: getattr(wanted, name) for name in wanted.model_fields_set}
        merged = kept.definition.model_copy(update=fields)
        if merged == kept.definition:
            return Applied(one, "unchanged")
        await calls.put(one.id, merged, if_match=kept.version)
    except ApiRefusedError as error:
        return Applied(one, "failed", str(error))
    return Applied(one, "changed")


async def _is_known(client: Client, agenda_id: str) -> bool:
    try:
        await client.agenda(agenda_id)
    except ApiNotFoundError:
        return False
    return True


async def _submit(client: Client, new: Sequence[ImportedObject]) -> list[Applied]:
    done: list[Applied] = []
    waiting = iter(new)
    while batch := [*islice(waiting, _AT_ONCE)]:
        try:
            results = (await client.submit_many([one.content for one in batch])).results
        except ApiRefusedError as error:
            found = error.problem.results if error.problem else UNSET
            if not found:
                done += [Applied(one, "failed", str(error)) for one in batch]
                continue
            results = found
        done += [_submitted(batch[one.index], one) for one in results]
    return done


def _submitted(one: ImportedObject, result: SubmissionResult) -> Applied:
    if result.status == HTTPStatus.ACCEPTED:
        return Applied(one, "submitted")
    issues = () if result.issues is UNSET else result.issues
    return Applied(one, "failed", "; ".join(map(str, issues)) or f"status {result.status}")


async def _wait_until_in_force(
    client: Client, found: Sequence[ImportedObject], new: Sequence[ImportedObject]
) -> None:
    """Wait until one submission of each customer would meet the insights that were sent.

    Before that, an agenda could go to another insight. After `IN_FORCE_WITHIN_S` it is left to
    the API to say what is missing.
    """
    insights = [
        Insight.model_validate(one.content)
        for one in found
        if one.kind == "insight" and one.content
    ]
    pools = {one.id: one.content.get("pool") for one in found if one.kind == "customer"}
    of_customers = {one.content.get("customer_id"): one for one in new}
    try:
        async with asyncio.timeout(IN_FORCE_WITHIN_S):
            for one in of_customers.values():
                while not await _is_in_force(client, one, insights, pools):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_EVERY_S)  # no event reaches a client
    except TimeoutError:
        return


async def _is_in_force(
    client: Client,
    one: ImportedObject,
    insights: Sequence[Insight],
    pools: Mapping[str, str | None],
) -> bool:
    try:
        explained = await client.explain_placement(one.content)
    except (ApiConflictError, ApiNotFoundError, ApiRefusedError):
        return False
    return all(
        _meets(explained, insight, pools)
        for insight in insights
        if insight.serves(explained.customer_id)
    )


def _meets(
    explained: RouteExplanation, insight: Insight, pools: Mapping[str, str | None]
) -> bool:
    """Whether an insight is considered, and by its pool and the customer's."""
    outcome = next(
        (one.outcome for one in explained.considered if one.insight_id == insight.id), None
    )
    pool = pools.get(explained.customer_id)
    if outcome is None or pool is None:
        return outcome is not None
    return (outcome == "other_pool") == (insight.pool != pool)
