"""The demo's operations: what there is to find out about one file of Python source."""

import hashlib
import tokenize
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pop_stream.puller.handlers.errors import FinalError
from pop_stream.puller.handlers.invocation import SyncOperationCall
from pop_stream.puller.handlers.registry import Handlers

handlers = Handlers()


@handlers.handler("file.read")
def read(call: SyncOperationCall) -> Mapping[str, Any]:
    """Find the file; `{path}` to `{path, bytes, lines}`."""
    path = _path(call)
    content = _content(path)
    return {"path": str(path), "bytes": len(content), "lines": content.count(b"\n")}


@handlers.handler("file.hash")
def sha256(call: SyncOperationCall) -> Mapping[str, Any]:
    """`{path}` to `{sha256}`."""
    return {"sha256": hashlib.sha256(_content(_path(call))).hexdigest()}


@handlers.handler("file.count")
def count(call: SyncOperationCall) -> Mapping[str, Any]:
    """`{path}` to `{tokens, names}`, where names are distinct."""
    tokens, names = 0, set()
    try:
        with _path(call).open("rb") as source:
            for token in tokenize.tokenize(source.readline):
                tokens += 1
                if token.type == tokenize.NAME:
                    names.add(token.string)
    except (OSError, SyntaxError, tokenize.TokenError) as error:
        raise FinalError(str(error)) from error
    return {"tokens": tokens, "names": len(names)}


@handlers.handler("file.compress")
def compress(call: SyncOperationCall) -> Mapping[str, Any]:
    """`{path}` to `{ratio}`, compressed by original size."""
    content = _content(_path(call))
    return {"ratio": round(len(zlib.compress(content)) / max(1, len(content)), 3)}


@handlers.handler("file.report")
def report(call: SyncOperationCall) -> Mapping[str, Any]:
    """The results of the others to `{text}`."""
    found = call.payload
    if not isinstance(found, Mapping):
        msg = "the payload must be an object of results"
        raise FinalError(msg)
    name = Path(str(found["path"])).name
    text = (
        f"{name}: {found['lines']} lines, {found['tokens']} tokens, packs to "
        f"{found['ratio']}, sha256 {str(found['sha256'])[:12]}"
    )
    return {"text": text}


def _path(call: SyncOperationCall) -> Path:
    if isinstance(call.payload, Mapping) and isinstance(call.payload.get("path"), str):
        return Path(str(call.payload["path"]))
    msg = "the payload must be an object with the path of a file"
    raise FinalError(msg)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FinalError(str(error)) from error
