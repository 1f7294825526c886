"""Calls for agenda templates."""

from collections.abc import Mapping
from typing import Any

from pop_stream.client.content import is_named, to_json
from pop_stream.client.definitions import DefinitionCalls
from pop_stream.client.transport import Transport
from pop_stream.core.definitions.template import AgendaTemplate, TemplateCall
from pop_stream.shapes.placement import Preview
from pop_stream.shapes.submissions import AcceptedAgenda


class TemplateCalls(DefinitionCalls[AgendaTemplate]):
    """Agenda templates, and their runs."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, "agenda-templates", AgendaTemplate)

    async def run(
        self, template_id: str, call: TemplateCall | Mapping[str, Any] | None = None
    ) -> AcceptedAgenda:
        """Submit the agenda that a template makes of a payload and parameters.

        It is sent again while the API does not answer only if the call names the agenda's
        `id`.

        Args:
            template_id: Of the template.
            call: `payload`, `params`, and fields of the agenda that win over the template's.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiRefusedError: If the call or the agenda is not sound; `issues` say why.
            ApiConflictError: If something else was accepted under the agenda's id.
            ApiError: If there is no answer.
        """
        content = {} if call is None else call
        return await self._transport.post(
            AcceptedAgenda,
            "agenda-templates",
            template_id,
            "run",
            body=to_json(content),
            is_repeatable=is_named(content),
        )

    async def preview(
        self, template_id: str, call: TemplateCall | Mapping[str, Any] | None = None
    ) -> Preview:
        """That agenda and where it would go; nothing is submitted.

        Raises:
            NotFoundError: If there is none that the caller may see.
            ApiRefusedError: If the call or the agenda is not sound; `issues` say why.
            ApiError: If there is no answer.
        """
        return await self._transport.post(
            Preview,
            "agenda-templates",
            template_id,
            "preview",
            body=to_json({} if call is None else call),
            is_repeatable=True,
        )
