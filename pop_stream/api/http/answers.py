"""Answers in JSON."""

from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web

from pop_stream.shapes.base import ResponseModel

JSON: Final = "application/json"

_ENCODER: Final = msgspec.json.Encoder()


def encode(model: ResponseModel) -> bytes:
    """The model as JSON."""
    return _ENCODER.encode(model)


def json_response(
    model: ResponseModel, *, status: int, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An answer in JSON."""
    return web.Response(
        body=_ENCODER.encode(model), status=status, headers=headers, content_type=JSON
    )
