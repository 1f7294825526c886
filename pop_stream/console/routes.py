"""Which page or form each address of the console has."""

from collections.abc import Awaitable, Callable
from typing import Final

from multidict import MultiMapping

from pop_stream.console.pages.agenda import act, agenda
from pop_stream.console.pages.agendas import agendas, command_all
from pop_stream.console.pages.dead_letters import (
    command_letters,
    dead_letter,
    dead_letters,
    settle_letter,
)
from pop_stream.console.pages.definition_edits import (
    change_it,
    define,
    define_it,
    delete_it,
    deletion,
    edit,
    version,
)
from pop_stream.console.pages.definitions import definition, definitions, kinds
from pop_stream.console.pages.insight import customer_queue, insight
from pop_stream.console.pages.overview import overview
from pop_stream.console.pages.pullers import pullers
from pop_stream.console.pages.routing import explain_route, routing
from pop_stream.console.pages.schedules import command_schedule
from pop_stream.console.pages.service import audit, change_key, doctor, keys, make_key
from pop_stream.console.pages.submit import run_template, submit
from pop_stream.console.pages.weights import (
    forecast,
    pause_customer,
    pause_insight,
    set_weight,
)
from pop_stream.console.rendering import Page
from pop_stream.console.viewing import PageView

PageMaker = Callable[[PageView], Awaitable[Page]]

FormHandler = Callable[[PageView, MultiMapping[str]], Awaitable[Page | str]]
"""Answers with a page, or with the address, below the console's path, where to go on."""

PAGES: Final[tuple[tuple[str, PageMaker], ...]] = (
    ("/", overview),
    ("/insights/{insight_id}", insight),
    ("/insights/{insight_id}/forecast", forecast),
    ("/insights/{insight_id}/customers/{customer_id}", customer_queue),
    ("/agendas", agendas),
    ("/agendas/{agenda_id}", agenda),
    ("/submit", submit),
    ("/definitions", kinds),
    ("/definitions/{kind}", definitions),
    ("/definitions/{kind}/{object_id}", definition),
    ("/definitions/{kind}/{object_id}/edit", edit),
    ("/definitions/{kind}/{object_id}/delete", deletion),
    ("/definitions/{kind}/{object_id}/versions/{version}", version),
    ("/define/{kind}", define),
    ("/routing", routing),
    ("/dead-letters", dead_letters),
    ("/dead-letters/{letter_id}", dead_letter),
    ("/pullers", pullers),
    ("/keys", keys),
    ("/audit", audit),
    ("/doctor", doctor),
)

FORMS: Final[tuple[tuple[str, FormHandler], ...]] = (
    ("/agendas/commands", command_all),
    ("/agendas/{agenda_id}/{action}", act),
    ("/submit", run_template),
    ("/define/{kind}", define_it),
    ("/definitions/{kind}/{object_id}/edit", change_it),
    ("/definitions/{kind}/{object_id}/delete", delete_it),
    ("/schedules/{object_id}/{action}", command_schedule),
    ("/routing", explain_route),
    ("/dead-letters/commands", command_letters),
    ("/dead-letters/{letter_id}/{action}", settle_letter),
    ("/keys", make_key),
    ("/keys/{key_id}/{action}", change_key),
    ("/customers/{customer_id}/weight", set_weight),
    ("/customers/{customer_id}/{action}", pause_customer),
    ("/insights/{insight_id}/{action}", pause_insight),
)
