"""The id that ties a request, its answer and its lines in the log together."""

import re
import uuid
from typing import Final

from aiohttp import web

HEADER: Final = "X-Correlation-Id"

PATTERN: Final = r"^[A-Za-z0-9._:~-]{1,128}$"
"""What a client may send; anything else is replaced, so that no header can forge a log line."""

_VALID: Final = re.compile(PATTERN)
_KEY: Final = web.RequestKey("correlation_id", str)


def correlation_id(request: web.BaseRequest) -> str:
    """The request's id: the client's own if it sent a usable one, else one made here."""
    known = request.get(_KEY)
    if known is None:
        sent = request.headers.get(HEADER, "")
        known = sent if _VALID.fullmatch(sent) else uuid.uuid4().hex
        request[_KEY] = known
    return known
