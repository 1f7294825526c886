"""The built-in handler `command`: a program that the operator allows, never through a shell."""

import asyncio
import os
import re
import signal
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from pop_stream.model.trace import Trace
from pop_stream.puller.handlers.errors import FinalError, RetryableError, read_payload
from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.reporting.messages import excerpt

OUTPUT_BYTES: Final = 96 * 1024
"""Most of each output that becomes part of the result; the rest is read and dropped."""

TERMINATE_TIMEOUT_S: Final = 3.0
"""How long a program that is to stop has from SIGTERM to SIGKILL."""

_SHOWN_BYTES: Final = 500
_REAP_TIMEOUT_S: Final = 5.0
_PRIVATE: Final = re.compile(r"POP_.*|OTEL_EXPORTER_.*HEADERS|TRACEPARENT|TRACESTATE")
"""Variables that programs are not given: secrets, and whatever trace the puller is part of."""


class CommandPayload(BaseModel):
    """Payload of a `command` operation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    program: Annotated[str, Field(min_length=1)]
    args: tuple[str, ...] = ()
    stdin: str | None = None
    timeout_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 60.0


class CommandHandler:
    """Runs programs of a list.

    A program has its own process group. When its time is up or the agenda is to stop, the
    group gets SIGTERM, and SIGKILL if it is there seconds later. It gets the puller's
    environment without the POP_ variables and without the secrets of exporters of traces, and
    the operation's trace context as TRACEPARENT and TRACESTATE.

    Args:
        allowed: Programs, as a payload must name them.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)

    async def __call__(self, operation: OperationCall) -> Mapping[str, Any]:
        """Run the program of the payload; see `CommandPayload`.

        Returns:
            `{exit_code, stdout, stderr}`, with `truncated` if an output was too long.

        Raises:
            FinalError: If the payload is wrong or the program is not allowed or not there.
            RetryableError: If it ran too long or its exit code is not 0.
        """
        command = read_payload(CommandPayload, operation.payload)
        if command.program not in self._allowed:
            msg = (
                f"payload.program = {command.program!r}: is not allowed here; an operator may "
                "add it to POP_ALLOWED_COMMANDS"
            )
            raise FinalError(msg)
        process = await _started(command, _environment(operation.trace))
        try:
            async with asyncio.timeout(command.timeout_s):
                stdout, stderr = await _communicate(process, command.stdin)
        except BaseException as error:
            await _end(process)
            if isinstance(error, TimeoutError):
                msg = f"payload.timeout_s = {command.timeout_s:g}: {command.program} ran longer"
                raise RetryableError(msg) from None
            raise
        return _result(command, process.returncode or 0, stdout, stderr)


def _environment(trace: Trace | None) -> dict[str, str]:
    """The puller's own without its secrets, and with the trace context of the operation.

    Source: https://opentelemetry.io/docs/specs/otel/context/env-carriers/.
    """
    known = {name: value for name, value in os.environ.items() if not _PRIVATE.fullmatch(name)}
    context = trace.context if trace is not None else {}
    return known | {name.upper(): value for name, value in context.items()}


async def _started(
    command: CommandPayload, environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    starting = asyncio.create_task(_start(command, environment))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled while starting, asyncio ends the program but not the children it has.
        with suppress(FinalError, OSError):
            await _end(await starting)
        raise


async def _start(
    command: CommandPayload, environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            command.program,
            *command.args,
            stdin=asyncio.subprocess.DEVNULL
            if command.stdin is None
            else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
    except (FileNotFoundError, PermissionError, ValueError) as error:
        msg = f"payload.program = {command.program!r}: cannot be started here: {error}"
        raise FinalError(msg) from None


async def _communicate(
    process: asyncio.subprocess.Process, stdin: str | None
) -> tuple[bytes, bytes]:
    async with asyncio.TaskGroup() as group:
        stdout = group.create_task(_head(process.stdout))
        stderr = group.create_task(_head(process.stderr))
        if process.stdin is not None:
            # A program may end without reading its input.
            with suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write((stdin or "").encode(errors="replace"))
                await process.stdin.drain()
            process.stdin.close()
    await process.wait()
    return stdout.result(), stderr.result()


async def _head(stream: asyncio.StreamReader | None) -> bytes:
    head = bytearray()
    while stream is not None and (chunk := await stream.read(64 * 1024)):
        head += chunk[: OUTPUT_BYTES + 1 - len(head)]
    return bytes(head)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the whole group to end, then force what is left of it."""
    _signal(process, signal.SIGTERM)
    await _wait(process, TERMINATE_TIMEOUT_S)
    _signal(process, signal.SIGKILL)
    await _wait(process, _REAP_TIMEOUT_S)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


async def _wait(process: asyncio.subprocess.Process, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()


def _result(
    command: CommandPayload, code: int, stdout: bytes, stderr: bytes
) -> Mapping[str, Any]:
    if code:
        shown, _ = excerpt(
            stderr[-_SHOWN_BYTES:] or stdout[-_SHOWN_BYTES:], most_bytes=_SHOWN_BYTES
        )
        msg = f"{command.program} ended with exit code {code}: {shown.strip() or 'no output'}"
        raise RetryableError(msg)
    out, out_is_cut = excerpt(stdout, most_bytes=OUTPUT_BYTES)
    err, err_is_cut = excerpt(stderr, most_bytes=OUTPUT_BYTES)
    result: dict[str, Any] = {"exit_code": code, "stdout": out, "stderr": err}
    return result | ({"truncated": True} if out_is_cut or err_is_cut else {})
