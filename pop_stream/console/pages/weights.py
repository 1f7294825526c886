"""A customer's weight, changed by a form of an insight's page."""

from math import isfinite

from multidict import MultiMapping

from pop_stream.client import ApiNotFoundError
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import Issue, NotFoundError, SubmissionError


async def set_weight(view: PageView, form: MultiMapping[str]) -> str:
    """Give a customer another weight; one that is not defined is defined by that.

    Returns:
        Where to go on: the insight that the form names.

    Raises:
        SubmissionError: If the weight is no number.
        ApiError: If the API does not take it.
    """
    customer_id, text = view.parts["customer_id"], form.get("weight", "").strip()
    try:
        weight = float(text.replace(",", "."))
    except ValueError:
        weight = float("nan")
    if not isfinite(weight):
        raise SubmissionError([Issue("weight", text[:200], "must be a number, such as 2.5")])
    try:
        stored = await view.client.customers.get(customer_id)
    except (ApiNotFoundError, NotFoundError):
        await view.client.customers.create({"id": customer_id, "weight": weight})
    else:
        await view.client.customers.patch(
            customer_id, {"weight": weight}, if_match=stored.version
        )
    return f"/insights/{form.get('insight', '')}?did=weight"
