"""A BMC whose every byte a test chooses: for what an emulated one is too well behaved."""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from slurm_lifecycle.redfish.pool import BmcPool
from slurm_lifecycle.redfish.settings import BmcSettings
from slurm_lifecycle.sandbox.bmc.certificates import Certificate
from tests.contract.bmc_rig import NODE, SERIAL, Desk, credentials

SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
SESSIONS = "/redfish/v1/SessionService/Sessions"
TREE: Mapping[str, Any] = {
    "/redfish/v1/": {
        "Id": "Root",
        "Name": "Root",
        "RedfishVersion": "1.15.0",
        "Links": {"Sessions": {"@odata.id": SESSIONS}},
    },
    SYSTEM: {
        "PowerState": "On",
        "SerialNumber": SERIAL,
        "Boot": {
            "BootSourceOverrideEnabled": "Once",
            "BootSourceOverrideTarget": "Pxe",
            "BootSourceOverrideMode": "Legacy",
        },
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": RESET,
                "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown"],
            }
        },
    },
}


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class Silence(Exception):
    """Nothing is answered, and the connection stays open."""


class Garbage(Exception):
    """What comes back is no TLS any more."""


def answer(status: int, body: object = None, **headers: str) -> bytes:
    """An answer in HTTP."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


def said(message_id: str, text: str) -> dict[str, Any]:
    """An error as Redfish words it."""
    return {"error": {"code": message_id, "message": text, "@Message.ExtendedInfo": []}}


@dataclass
class RawBmc:
    """Serves one connection at a time, each for one request.

    Attributes:
        odd: answers in place of the usual ones; None for the usual one.
        asked: every request.
        byte_s: seconds from byte to byte of each answer; 0 for all at once.
        shakes_hands: False: the connection is taken, and no TLS spoken.
    """

    certificate: Certificate
    odd: Callable[[Asked], bytes | None] = lambda _: None
    asked: list[Asked] = field(default_factory=list)
    byte_s: float = 0.0
    shakes_hands: bool = True

    def __enter__(self) -> "RawBmc":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._ended = threading.Event()
        self._context = self.certificate.server_context()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in (self._accepting, *self._threads):
            thread.join(10)
        self._listener.close()

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def of(self, method: str, end: str = "") -> list[Asked]:
        """Requests by method and the end of their path."""
        return [one for one in self.asked if one.method == method and one.path.endswith(end)]

    def _accept(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                raw, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(raw,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, raw: socket.socket) -> None:
        raw.settimeout(10)
        with contextlib.suppress(OSError), raw:
            if not self.shakes_hands:
                self._ended.wait(30)
                return
            with self._context.wrap_socket(raw, server_side=True) as tls:
                try:
                    self._send(tls, self._answer(_request(tls)))
                except Silence:
                    self._ended.wait(30)
                except Garbage:
                    with contextlib.suppress(OSError):
                        socket.socket(fileno=tls.detach()).send(b"\x17\x03\x03\x00\x20" + b"\x00" * 32)

    def _send(self, tls: ssl.SSLSocket, content: bytes) -> None:
        if not self.byte_s:
            tls.sendall(content)
            return
        for byte in content:
            if self._ended.wait(self.byte_s):
                return
            tls.send(bytes([byte]))

    def _answer(self, asked: Asked) -> bytes:
        self.asked.append(asked)
        odd = self.odd(asked)
        if odd is not None:
            return odd
        if asked.method == "GET" and asked.path in TREE:
            return answer(200, TREE[asked.path])
        if (asked.method, asked.path) == ("POST", SESSIONS):
            place = f"{SESSIONS}/{len(self.asked)}"
            return answer(201, {"@odata.id": place}, X_Auth_Token=f"t{len(self.asked)}", Location=place)
        return answer(404 if asked.method == "GET" else 204)


def _request(tls: ssl.SSLSocket) -> Asked:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(tls)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = {key.lower(): value.strip() for key, _, value in (one.partition(":") for one in rest)}
    while len(body) < int(headers.get("content-length", 0)):
        body += _more(tls)
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, json.loads(body) if body else None)


def _more(tls: ssl.SSLSocket) -> bytes:
    found = tls.recv(65536)
    if not found:
        raise ConnectionResetError
    return found


@contextmanager
def raw_desk(
    certificate: Certificate, odd: Callable[[Asked], bytes | None] = lambda _: None, **changes: Any
) -> Iterator[tuple[Desk, RawBmc]]:
    """A raw BMC, and the client that is under test."""
    with RawBmc(certificate, odd) as bmc:
        settings = BmcSettings(
            NODE,
            bmc.address,
            "generic",
            **{
                "credentials": credentials(),
                "serial": SERIAL,
                "ca_file": str(certificate.ca_file),
                "connect_timeout_s": 1.0,
                "read_timeout_s": 1.0,
                **changes,
            },
        )
        pool = BmcPool({NODE: settings})
        desk = Desk(settings, pool)
        try:
            yield desk, bmc
        finally:
            for one in (pool, *desk.changed):
                one.close()


def until(true: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Whether something becomes true."""
    end = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
