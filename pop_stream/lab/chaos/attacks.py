"""What a hostile customer tries with an ordinary key: steps, each repeated at its own pace.

A step sends what an API cannot know beforehand to be an attack: it is readable, and some part
might not be able to carry it on. The attacks are those classes of input that once stopped a
part, or made one customer pay for another: instants, sizes, work in a schema or a schedule,
numbers of things, slow bodies, calls of internal addresses, odd text, junk in the public topic.
"""

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from pop_stream.lab.chaos.handlers import WORK
from pop_stream.lab.chaos.load import INSIGHTS, PARAM
from pop_stream.model.errors import PopStreamError
from pop_stream.ports.publisher import Publisher, Record

_ANSWERS_WITHIN_S: Final = 60.0
_SLOW_BYTES: Final = 30
_INSTANTS: Final = (
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.9999999Z",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "8999-12-31T23:59:59Z",
    "1970-01-01T00:00:00Z",
)
_TEXTS: Final = ("%00", "%ED%A0%80", "9" * 4400, "%FF%FE", "-1", "1" + "0" * 30, "a" * 7000)
_PATHS: Final = (
    "/v1/agendas?customer_id={}",
    "/v1/agendas?after={}",
    "/v1/agendas?created_from={}",
    "/v1/agendas/{}",
    "/v1/links/{}/summary",
    "/v1/agenda-templates/{}",
    "/v1/keys/{}",
)
_HOURS: Final = ",".join(map(str, range(24)))
_SCHEDULES: Final[tuple[Mapping[str, object], ...]] = (
    {"start": "2001-01-02T00:00:00Z", "trigger": {"rrule": "FREQ=DAILY;INTERVAL=0"}},
    {"start": "1970-01-01T00:00:00Z", "trigger": {"rrule": f"FREQ=DAILY;BYHOUR={_HOURS}"}},
    {
        "start": "1970-01-01T00:00:00Z",
        "trigger": {"rrule": "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=31"},
    },
    {
        "start": "2025-01-01T00:00:00Z",
        "trigger": {"every_s": 1},
        "catch_up_s": 31_622_400,
        "misfire": "coalesce",
        "overlap": "skip",
    },
)
"""Those that take longest to find the next instants of, and one that makes up for a year."""

_PARALLEL_UPLOADS: Final = 8
_PARALLEL_STREAMS: Final = 30
_STREAM_HELD_S: Final = 5.0


@dataclass(slots=True)
class HostileCustomer:
    """One customer, its key, and what it was answered.

    Attributes:
        url: Of the API, without a slash at the end.
        token: An ordinary key of the customer: all roles that a customer has.
        answers: How often each attack was answered how: by status, or `none`.
        last_id: Of the agenda that it made last.
    """

    url: str
    token: str
    customer_id: str
    session: aiohttp.ClientSession
    publisher: Publisher
    submissions: str
    chance: Random
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    last_id: str = "none"

    @property
    def server_errors(self) -> Mapping[str, int]:
        """Answers that were a fault of the server, by attack and status.

        503 is none: it is how the one who holds most memory is asked to wait.
        """
        allowed = str(int(HTTPStatus.SERVICE_UNAVAILABLE))
        return {
            f"{attack} {status}": times
            for (attack, status), times in self.answers.items()
            if status.startswith("5") and status != allowed
        }

    async def call(
        self,
        attack: str,
        method: str,
        target: str,
        body: object = None,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:  # noqa: ANN401  # whatever JSON it is
        """Send one request and count its answer.

        Returns:
            The body of a successful answer, as JSON; None of any other.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        sent = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": kind,
            **(headers or {}),
        }
        content = json.dumps(body).encode() if data is None and body is not None else data
        try:
            async with (
                asyncio.timeout(_ANSWERS_WITHIN_S),
                self.session.request(
                    method, URL(self.url + target, encoded=True), data=content, headers=sent
                ) as response,
            ):
                self.answers[attack, str(response.status)] += 1
                if response.content_type == "text/event-stream":
                    await asyncio.sleep(_STREAM_HELD_S)
                    return None
                said = await response.read()
                return json.loads(said) if response.ok and said else None
        except (aiohttp.ClientError, TimeoutError):
            self.answers[attack, "none"] += 1
            return None


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to hurt.

    Attributes:
        every_s: From the end of a step to the next one.
    """

    name: str
    every_s: float
    step: Callable[[HostileCustomer, str], Awaitable[None]]


async def wage(hostile: HostileCustomer, attacks: Sequence[Attack]) -> None:
    """Repeat every attack at its pace; runs until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for one in attacks:
            tasks.create_task(_repeat(hostile, one))


async def _repeat(hostile: HostileCustomer, attack: Attack) -> None:
    while True:
        await attack.step(hostile, attack.name)
        await asyncio.sleep(attack.every_s)


def _agenda(hostile: HostileCustomer, payload: object = 0.01, **fields: object) -> Any:  # noqa: ANN401
    return {
        "customer_id": hostile.customer_id,
        "params": {PARAM: INSIGHTS[0]},
        "operations": [{"name": "o", "type": WORK, "payload": payload}],
        **fields,
    }


async def _extreme_instants(hostile: HostileCustomer, name: str) -> None:
    fields = {
        one: hostile.chance.choice(_INSTANTS)
        for one in hostile.chance.sample(("not_before", "expires_at"), 1)
    }
    answer = await hostile.call(name, "POST", "/v1/agendas", _agenda(hostile, **fields))
    if answer is not None:
        hostile.last_id = answer["id"]
        path = f"/v1/agendas/{answer['id']}"
        await hostile.call(name, "POST", f"{path}/cancel", {"reason": "no more"})
        await hostile.call(name, "DELETE", path)


@cache
def _gzipped() -> bytes:
    """20 MB of a text, made once: who attacks and who is measured share this process."""
    return gzip.compress(b'["' + b"x" * 20_000_000 + b'"]')


async def _large_agendas(hostile: HostileCustomer, name: str) -> None:
    size = hostile.chance.choice((100_000, 880_000, 899_000, 1_100_000))
    await hostile.call(name, "POST", "/v1/agendas", _agenda(hostile, "x" * size))
    compressed = {"Content-Encoding": "gzip"}
    await hostile.call(name, "POST", "/v1/agendas", data=_gzipped(), headers=compressed)


async def _growing_templates(hostile: HostileCustomer, name: str) -> None:
    template = f"t{hostile.chance.randrange(10**9)}"
    agenda = _agenda(hostile)
    made = await hostile.call(
        name, "POST", "/v1/agenda-templates", {"id": template, "agenda": agenda}
    )
    if made is None:
        return
    path = f"/v1/agenda-templates/{template}"
    for number in range(4):
        grown = {"static_params": {f"p{number}": "x" * 180_000}}
        await hostile.call(name, "PATCH", path, grown, headers={"If-Match": "*"})
    await hostile.call(name, "POST", f"{path}/run", {"payload": None})


async def _work_in_schemas(hostile: HostileCustomer, name: str) -> None:
    levels = hostile.chance.randint(4, 20)
    rule = hostile.chance.choice(("anyOf", "allOf", "oneOf"))
    defs: dict[str, object] = {
        f"d{one}": {rule: [{"$ref": f"#/$defs/d{one + 1}"}] * 2} for one in range(levels)
    }
    defs[f"d{levels}"] = {"pattern": "(a|aa|a?){1,60}b"}
    template = f"s{hostile.chance.randrange(10**9)}"
    body = {
        "id": template,
        "agenda": _agenda(hostile),
        "payload_schema": {"$ref": "#/$defs/d0", "$defs": defs},
    }
    if await hostile.call(name, "POST", "/v1/agenda-templates", body) is not None:
        run = {"payload": ["a" * 50_000]}
        await hostile.call(name, "POST", f"/v1/agenda-templates/{template}/run", run)


async def _work_in_schedules(hostile: HostileCustomer, name: str) -> None:
    schedule = f"c{hostile.chance.randrange(10**9)}"
    body = {"id": schedule, "submission": _agenda(hostile), **hostile.chance.choice(_SCHEDULES)}
    if await hostile.call(name, "POST", "/v1/schedules", body) is not None:
        await hostile.call(name, "GET", f"/v1/schedules/{schedule}/next?n=100")


async def _many_things(hostile: HostileCustomer, name: str) -> None:
    number = hostile.chance.randrange(10**9)
    body = {"id": f"n{number}", "agenda": _agenda(hostile)}
    await hostile.call(name, "POST", "/v1/agenda-templates", body)
    await hostile.call(name, "POST", "/v1/keys", {"roles": ["read"], "title": "one more"})


async def _many_agendas(hostile: HostileCustomer, name: str) -> None:
    far = {"not_before": "8999-12-31T23:59:59Z"}
    batch = [_agenda(hostile, **far) for _ in range(50)] + [_agenda(hostile)] * 10
    await hostile.call(name, "POST", "/v1/agendas", batch)


async def _event_streams(hostile: HostileCustomer, name: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(_PARALLEL_STREAMS):
            path = f"/v1/agendas/{hostile.last_id}/events"
            tasks.create_task(hostile.call(name, "GET", path))


async def _odd_texts(hostile: HostileCustomer, name: str) -> None:
    path = hostile.chance.choice(_PATHS).format(hostile.chance.choice(_TEXTS))
    await hostile.call(name, "GET", path)
    operations = [{"name": "o", "type": WORK, "payload": ["\0", "\ud800", "@<o.out::/>"]}]
    await hostile.call(name, "POST", "/v1/agendas", _agenda(hostile, operations=operations))


async def _internal_calls(hostile: HostileCustomer, name: str) -> None:
    host = hostile.chance.choice(("127.0.0.1", "[::1]", "localhost", "169.254.169.254"))
    port = urlsplit(hostile.url).port
    payload = {"url": f"http://{host}:{port}/v1/me"}
    operations = [{"name": "o", "type": "http", "payload": payload}]
    fields = {"operations": operations, "callback_url": f"http://{host}:{port}/v1/agendas"}
    await hostile.call(name, "POST", "/v1/agendas", _agenda(hostile, **fields, max_attempts=1))


async def _slow_uploads(hostile: HostileCustomer, name: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(_PARALLEL_UPLOADS):
            tasks.create_task(_slow_upload(hostile, name, whole_headers=number % 4 != 0))


async def _slow_upload(hostile: HostileCustomer, name: str, *, whole_headers: bool) -> None:
    at = urlsplit(hostile.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    head = (
        f"POST /v1/agendas HTTP/1.1\r\nHost: {at.netloc}\r\n"
        f"Authorization: Bearer {hostile.token}\r\nContent-Type: application/json\r\n"
        "Content-Length: 900000\r\n"
    )
    try:
        writer.write((head + ("\r\n[" if whole_headers else "X-Slow: ")).encode())
        for _ in range(_SLOW_BYTES):
            await asyncio.sleep(1)
            writer.write(b"x")
            await writer.drain()
        status = (await reader.readline()).split(b" ")[1:2]
        hostile.answers[name, status[0].decode() if status else "none"] += 1
    except OSError:
        hostile.answers[name, "none"] += 1
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _junk_in_the_topic(hostile: HostileCustomer, name: str) -> None:
    far = {"not_before": hostile.chance.choice(_INSTANTS)}
    values = (
        hostile.chance.randbytes(1_000),
        b"[" * 100_000,
        json.dumps(_agenda(hostile, "x" * 900_000)).encode(),
        json.dumps(_agenda(hostile, **far)).encode(),
        json.dumps(_agenda(hostile, expires_at="9999-12-31T23:59:59-23:59")).encode(),
        b'{"attempt":' + b"9" * 4400 + b"}",
    )
    records = [Record(hostile.submissions, b"junk", one) for one in values]
    try:
        await hostile.publisher.publish(records)
        hostile.answers[name, "written"] += len(records)
    except PopStreamError:
        hostile.answers[name, "none"] += 1


ATTACKS: Final = (
    Attack("instants", 0.1, _extreme_instants),
    Attack("large agendas", 1.0, _large_agendas),
    Attack("growing templates", 1.0, _growing_templates),
    Attack("work in schemas", 0.5, _work_in_schemas),
    Attack("work in schedules", 0.5, _work_in_schedules),
    Attack("many things", 0.2, _many_things),
    Attack("many agendas", 1.0, _many_agendas),
    Attack("event streams", 0.5, _event_streams),
    Attack("odd texts", 0.1, _odd_texts),
    Attack("internal calls", 1.0, _internal_calls),
    Attack("slow uploads", 0.1, _slow_uploads),
    Attack("junk in the topic", 1.0, _junk_in_the_topic),
)
"""Some fifty requests a second, if each is answered at once."""
