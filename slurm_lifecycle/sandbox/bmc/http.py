"""As much of HTTP/1.1 as a Redfish client speaks: requests with a length, kept connections, JSON answers."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

_MAX_HEAD_BYTES = 64 * 1024
# A firmware package of the largest kind that a DGX takes (its MaxImageSizeBytes is 419,627,008).
_MAX_BODY_BYTES = 512 * 1024 * 1024
_KEPT_BODY_BYTES = 8 * 1024 * 1024
_IDLE_S = 120.0
_DRIBBLE_S = 1.0
_REASONS = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    412: "Precondition Failed",
    428: "Precondition Required",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `length` is that of the whole body, of which no more than 8 MiB are kept."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes = b""
    length: int = 0

    def json(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return json.loads(self.body) if self.body else None
        except (ValueError, RecursionError):
            return None


@dataclass(slots=True)
class Reply:
    """One answer.

    Attributes:
        wait_s: before it is sent.
        silent: nothing is ever sent, and the connection stays open.
        drop: the connection is closed in its place.
        dribble: it is sent a byte a second.
        raw: sent in place of a JSON body.
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    silent: bool = False
    drop: bool = False
    dribble: bool = False
    raw: bytes | None = None

    def encode(self, *, close: bool) -> bytes:
        """As it goes over the wire."""
        content = self.raw
        if content is None:
            content = b"" if self.body is None else json.dumps(self.body).encode()
        lines = [f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Status')}"]
        headers = {"Content-Type": "application/json", "OData-Version": "4.0", **self.headers}
        if self.status != 204:
            headers["Content-Length"] = str(len(content))
        headers["Connection"] = "close" if close else "keep-alive"
        lines += [f"{key}: {value}" for key, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (b"" if self.status == 204 else content)


Answer = Callable[[Request], Awaitable[Reply]]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
    """Answer requests on one connection until either side ends it."""
    try:
        while True:
            request = await asyncio.wait_for(_read(reader, writer), _IDLE_S)
            if request is None:
                return
            reply = await _answered(request, answer)
            if reply.wait_s:
                await asyncio.sleep(reply.wait_s)
            if reply.silent:
                # Until the client goes: it reads nothing, and learns nothing.
                await reader.read()
                return
            if reply.drop:
                return
            close = request.headers.get("connection", "").lower() == "close"
            content = reply.encode(close=close)
            for start in range(len(content) if reply.dribble else 0):
                writer.write(content[start : start + 1])
                await writer.drain()
                await asyncio.sleep(_DRIBBLE_S)
            if not reply.dribble:
                writer.write(content)
                await writer.drain()
            if close:
                return
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
        return
    except asyncio.TimeoutError:
        return
    finally:
        writer.close()


async def _answered(request: Request, answer: Answer) -> Reply:
    """The answer; what goes wrong in making it is a defect of the emulator, which its user has to see."""
    try:
        return await answer(request)
    except Exception:
        traceback.print_exc()
        return Reply(500, {"error": {"code": "Base.1.13.InternalError", "message": "the emulator failed"}})


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    if len(head) > _MAX_HEAD_BYTES:
        raise ValueError("head too long")
    first, *rest = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {}
    for line in rest:
        key, found, value = line.partition(":")
        if found:
            headers[key.strip().lower()] = value.strip()
    length = int(headers.get("content-length") or 0)
    if not 0 <= length <= _MAX_BODY_BYTES:
        raise ValueError("body too long")
    if headers.get("expect", "").lower() == "100-continue":
        # curl asks so before it sends a package.
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await _read_body(reader, length)
    parts = urlsplit(target)
    path = unquote(parts.path).rstrip("/") or "/"
    return Request(method, path, parts.query, headers, body, length)


async def _read_body(reader: asyncio.StreamReader, length: int) -> bytes:
    kept = await reader.readexactly(min(length, _KEPT_BODY_BYTES))
    left = length - len(kept)
    while left > 0:
        chunk = await reader.read(min(left, 1 << 20))
        if not chunk:
            raise ValueError("body cut off")
        left -= len(chunk)
    return kept
