"""HTTPS to one BMC: bounded in time and size, whatever it does, and to nobody but it."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import sushy.exceptions
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool

from slurm_lifecycle.redfish.settings import BmcSettings

# The largest single resource of a captured DGX H100 is some hundred KiB.
MAX_BODY_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_LEAST_S = 0.1
_REDIRECTS = 3
# After these the command was surely not carried out: a login, or the right ETag, is what is missing.
_NOT_DONE = (401, 412, 428)


class Nonsense(Exception):
    """The BMC answered with something that is not Redfish."""


class Forbidden(sushy.exceptions.HTTPError):  # type: ignore[misc]
    """403: it knows the account, and does not let it do this."""


class Deadline:
    """When a piece of work with a BMC has to be over, and its connection, to be cut when nobody waits."""

    def __init__(self, at: float) -> None:
        """Over at a time of the monotonic clock."""
        self.at = at
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._cut = False

    def left_s(self) -> float:
        """Seconds that are left."""
        return self.at - time.monotonic()

    def watch(self, sock: socket.socket) -> None:
        """The connection in use now."""
        with self._lock:
            self._socket = sock
            if self._cut:
                _shut(sock)

    def cut(self) -> None:
        """End whatever waits on the network."""
        with self._lock:
            self._cut = True
            if self._socket is not None:
                _shut(self._socket)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class _Socket(ssl.SSLSocket):
    """Every wait for the other side ends with the deadline: a byte now and then is no answer.

    The handshake needs none of this: OpenSSL's wrapper bounds it as a whole by the connect time-out.
    """

    context: "Context"

    def recv_into(self, *args: Any, **options: Any) -> int:
        self._bound()
        return super().recv_into(*args, **options)

    def send(self, *args: Any, **options: Any) -> int:
        self._bound()
        return super().send(*args, **options)

    def _bound(self) -> None:
        left_s = self.context.deadline.left_s()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self.settimeout(min(self.gettimeout() or left_s, left_s))


class Context(ssl.SSLContext):
    """TLS of one BMC, and what its sockets have to know.

    Attributes:
        at_stake: the request that is being made is a command.
        in_doubt: a command was handed over, and no answer says that it was not carried out.
    """

    sslsocket_class = _Socket
    deadline: Deadline
    at_stake = False
    in_doubt = False


class _Connection(HTTPSConnection):
    """One that can be cut, and that knows when a command is past recall."""

    def connect(self) -> None:
        super().connect()
        assert isinstance(self.ssl_context, Context)
        if self.sock is not None:
            self.ssl_context.deadline.watch(self.sock)

    def request(self, *args: Any, **options: Any) -> None:
        # Connected by now, and the certificate was looked at: from the first byte on it may be carried out.
        assert isinstance(self.ssl_context, Context)
        self.ssl_context.in_doubt |= self.ssl_context.at_stake
        super().request(*args, **options)


class _Pool(HTTPSConnectionPool):
    ConnectionCls = _Connection


class _Adapter(HTTPAdapter):
    """Makes such connections, and pins a certificate where one is to be pinned."""

    def __init__(self, context: Context, fingerprint: str) -> None:
        self._options: dict[str, Any] = {"ssl_context": context}
        if fingerprint:
            self._options |= {"assert_fingerprint": fingerprint, "assert_hostname": False}
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **{**options, **self._options})
        self.poolmanager.pool_classes_by_scheme = {"https": _Pool}


class Session(requests.Session):
    """Bounded: in time as a whole, in size, to one host; nothing of the environment is used.

    Attributes:
        keeps: one connection serves many requests, until `rest`.
        before_each: called before each request; may raise.
        command: method and URL of the command that is being sent.
    """

    def __init__(self, settings: BmcSettings, context: Context) -> None:
        super().__init__()
        self.trust_env = False
        self.context = context
        self.keeps = False
        self.before_each: Callable[[], None] | None = None
        self.command: tuple[str, str] | None = None
        self._address = settings.address
        self._timeouts_s = settings.connect_timeout_s, settings.read_timeout_s
        # Only these: plain HTTP is spoken to nobody.
        self.adapters.clear()
        self.mount("https://", _Adapter(context, settings.fingerprint.replace(":", "").lower()))

    def request(self, method: Any, url: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        for _ in range(_REDIRECTS):
            response = self._once(method, url, **options)
            if not response.is_redirect:
                break
            if method != "GET":
                raise Nonsense(f"it sends its client to another place: {response.headers['Location'][:80]!r}")
            url = urljoin(url, response.headers["Location"])
        else:
            raise Nonsense("it sends its client from place to place")
        if self.context.at_stake and response.status_code in _NOT_DONE:
            self.context.in_doubt = False
        if response.status_code == 403:
            raise Forbidden(method, url, response)
        return response

    def _once(self, method: str, url: str, **options: Any) -> requests.Response:
        if self.before_each is not None:
            self.before_each()
        if urlsplit(url)[:2] != urlsplit(self._address)[:2]:
            raise Nonsense(f"it names {url[:80]!r} as a place of its own")
        left_s = self.context.deadline.left_s()
        if left_s <= _LEAST_S:
            raise requests.exceptions.Timeout("no time was left to ask")
        self.headers["Connection"] = "keep-alive" if self.keeps else "close"
        self.context.at_stake = (method, url) == self.command
        bounded = {"timeout": tuple(min(one, left_s) for one in self._timeouts_s), "stream": True}
        response = super().request(method, url, **{**options, **bounded, "allow_redirects": False})
        self._read(response)
        return response

    def rest(self) -> None:
        """Close what was kept open."""
        for adapter in self.adapters.values():
            adapter.close()

    def resolve_redirects(self, *_: Any, **__: Any) -> Generator[Any, None, None]:
        """None by requests: it would read the body without a bound."""
        yield from ()

    def _read(self, response: requests.Response) -> None:
        content = bytearray()
        for chunk in response.iter_content(_CHUNK_BYTES):
            content += chunk
            if len(content) > MAX_BODY_BYTES:
                response.close()
                raise Nonsense(f"its answer is longer than {MAX_BODY_BYTES >> 20} MiB")
        response._content = bytes(content)
