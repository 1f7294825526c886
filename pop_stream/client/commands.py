"""Calls that command agendas: cancel, hold, release, reprioritise, rerun, delete."""

from collections.abc import Sequence
from typing import Literal

from pop_stream.api_models.commands import BulkCommand, BulkResult, CommandResult, Selection
from pop_stream.api_models.submissions import Resubmitted
from pop_stream.client.content import to_json
from pop_stream.client.transport import Call, Calls, path


class CommandCalls(Calls):
    """Cancel, hold, release, reprioritise, rerun and delete agendas, one or many."""

    async def cancel(self, agenda_id: str, *, reason: str = "") -> CommandResult:
        """End the agenda: at once while it waits; while it runs, its puller is notified.

        Raises:
            NotFoundError: If there is none.
            ApiConflictError: If its state forbids it.
            ApiError: If there is no answer.
        """
        return await self._command("cancel", agenda_id, {"reason": reason})

    async def hold(self, agenda_id: str, *, reason: str = "") -> CommandResult:
        """Let an agenda that waits wait until it is released.

        Raises:
            NotFoundError: If there is none.
            ApiConflictError: If its state forbids it.
            ApiError: If there is no answer.
        """
        return await self._command("hold", agenda_id, {"reason": reason})

    async def release(self, agenda_id: str, *, reason: str = "") -> CommandResult:
        """Let an agenda that is held take its turn.

        Raises:
            NotFoundError: If there is none.
            ApiConflictError: If its state forbids it.
            ApiError: If there is no answer.
        """
        return await self._command("release", agenda_id, {"reason": reason})

    async def reprioritise(
        self,
        agenda_id: str,
        *,
        priority: int | None = None,
        rank: int | None = None,
        reason: str = "",
    ) -> CommandResult:
        """Change where a waiting agenda stands among its customer's own.

        Args:
            agenda_id: Of the agenda.
            priority: 1, most urgent, to 9; None leaves it.
            rank: 0 to 65,535, least first; None leaves it.
            reason: Shown with the agenda and in its events.

        Raises:
            NotFoundError: If there is none.
            ApiConflictError: If its state forbids it.
            ApiRefusedError: If neither priority nor rank is set.
            ApiError: If there is no answer.
        """
        moves = {"priority": priority, "rank": rank}
        changes = {name: one for name, one in moves.items() if one is not None}
        return await self._command("reprioritise", agenda_id, {**changes, "reason": reason})

    async def rerun(
        self,
        agenda_id: str,
        *,
        operations: Literal["failed", "all"] | Sequence[str] = "failed",
        hold: bool = False,
        reason: str = "",
    ) -> CommandResult:
        """Run an agenda that has ended again, as a new attempt.

        It is not sent again if the answer is lost: that could be one attempt too many.

        Args:
            agenda_id: Of the agenda.
            operations: Which begin anew: those that did not succeed, all, or these and all
                that depend on them.
            hold: Whether it waits until it is released.
            reason: Shown with the agenda and in its events.

        Raises:
            NotFoundError: If there is none.
            ApiConflictError: If it has not ended.
            ApiError: If there is no answer.
        """
        command_request = {"operations": operations, "hold": hold, "reason": reason}
        return await self._command("rerun", agenda_id, command_request, is_repeatable=False)

    async def delete(self, agenda_id: str) -> None:
        """Remove an agenda that has ended, with all that is known of it.

        Raises:
            NotFoundError: If there is none; also if an earlier try of this call removed it.
            ApiConflictError: If it has not ended.
            ApiError: If there is no answer.
        """
        call = Call(method="DELETE", path=path("agendas", agenda_id), is_repeatable=True)
        await self._transport.send(call)

    async def command(self, command: BulkCommand) -> BulkResult:
        """One command for all agendas that fit and are in a state for it, however many.

        Without `dry_run` it is not sent again if the answer is lost.

        Raises:
            ApiRefusedError: If its filter is empty, or a field is wrong; `issues` say which.
            ApiError: If there is no answer; some may have been commanded.
        """
        return await self._transport.post(
            BulkResult, "commands", body=to_json(command), is_repeatable=command.dry_run
        )

    async def resubmit(
        self, where: Selection | None = None, *, dry_run: bool = False
    ) -> Resubmitted:
        """Submit refused agendas again, under their ids, those that pass now.

        Args:
            where: Which of the refused ones; all that the caller sees if None.
            dry_run: Only count.

        Raises:
            ApiError: If there is no answer; some may have been submitted.
        """
        content = {"filter": where or Selection(), "dry_run": dry_run}
        return await self._transport.post(
            Resubmitted, "resubmissions", body=to_json(content), is_repeatable=True
        )

    async def _command(
        self,
        action: str,
        agenda_id: str,
        command_request: dict[str, object],
        *,
        is_repeatable: bool = True,
    ) -> CommandResult:
        return await self._transport.post(
            CommandResult,
            "agendas",
            agenda_id,
            action,
            body=to_json(command_request),
            is_repeatable=is_repeatable,
        )
