"""A session with one BMC: sushy over a transport that is bounded in time and size, whatever the BMC does.

sushy sends a POST that timed out again, up to `server_side_retries` times in all (ten by default): here once.
Its own fall-back to basic authentication, where a BMC has no session left, is not used.
"""

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import requests
import sushy.auth
import sushy.connector
import sushy.exceptions
import sushy.main
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool

from slurm_lifecycle.redfish.settings import BmcSettings, Credentials

# The largest single resource of a captured DGX H100 is some hundred KiB.
MAX_BODY_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_RETRY_DELAY_S = 1
_CLOSE_S = 5.0
# What goes wrong is told by us, once, and without what a library thinks may be said.
for _name in ("sushy", "urllib3"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class Nonsense(Exception):
    """The BMC answered with something that is not Redfish."""


class Late(requests.exceptions.Timeout):
    """The time for the whole of it is over. `sent` tells whether the request had been handed over."""


class Deadline:
    """When a piece of work with a BMC has to be over, and the socket to cut when it is not.

    requests counts its read time-out from byte to byte: a BMC that sends one every few seconds would hold its
    thread for ever.
    """

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


class _Connection(HTTPSConnection):
    """One that its deadline can cut."""

    deadline: Deadline | None = None

    def connect(self) -> None:
        super().connect()
        if self.deadline is not None and self.sock is not None:
            self.deadline.watch(self.sock)


class _Adapter(HTTPAdapter):
    """Pins a certificate where one is to be pinned, and makes connections that can be cut."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self.deadline: Deadline | None = None
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        if self._fingerprint:
            options |= {"assert_fingerprint": self._fingerprint, "assert_hostname": False}
        super().init_poolmanager(*args, **options)
        adapter = self

        class Connection(_Connection):
            def connect(self) -> None:
                self.deadline = adapter.deadline
                super().connect()

        class Pool(HTTPSConnectionPool):
            ConnectionCls = Connection

        self.poolmanager.pool_classes_by_scheme = {
            **self.poolmanager.pool_classes_by_scheme,
            "https": Pool,
        }


class _Session(requests.Session):
    """Bounded: in time as a whole, in size, to one host; nothing of the environment is used."""

    def __init__(self, adapter: _Adapter) -> None:
        super().__init__()
        self.trust_env = False
        self.deadline: Deadline | None = None
        self._adapter = adapter
        self.mount("https://", adapter)

    def request(self, method: Any, url: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        left_s = self.deadline.left_s() if self.deadline is not None else 60.0
        if left_s <= 0.1:
            raise requests.exceptions.ConnectTimeout("no time was left to ask")
        connect_s, read_s = options.pop("timeout", None) or (5.0, 30.0)
        self._adapter.deadline = self.deadline
        response = super().request(
            method,
            url,
            timeout=(min(connect_s, left_s), min(read_s, left_s)),
            allow_redirects=False,
            stream=True,
            **options,
        )
        self._read(response)
        if response.is_redirect:
            raise Nonsense(f"it sends its client to another place: {response.headers.get('Location')!r}")
        return response

    def _read(self, response: requests.Response) -> None:
        content = bytearray()
        for chunk in response.iter_content(_CHUNK_BYTES):
            content += chunk
            if len(content) > MAX_BODY_BYTES:
                response.close()
                raise Nonsense(f"its answer is longer than {MAX_BODY_BYTES >> 20} MiB")
            if self.deadline is not None and self.deadline.left_s() <= 0:
                response.close()
                raise requests.exceptions.ReadTimeout("the whole answer did not come in time")
        response._content = bytes(content)


class Connection:
    """A BMC that is logged in to."""

    def __init__(self, settings: BmcSettings, credentials: Credentials, deadline: Deadline) -> None:
        """Log in.

        Raises:
            Exception: whatever sushy and requests raise; `problems.problem_of` names them.
        """
        verify: str | bool = settings.ca_file or not (settings.insecure or settings.fingerprint)
        self._connector = sushy.connector.Connector(
            settings.address,
            verify=verify,
            server_side_retries=1,
            server_side_retries_delay=_RETRY_DELAY_S,
            default_request_timeout=settings.read_timeout_s,
            connect_timeout=settings.connect_timeout_s,
        )
        self._http = _Session(_Adapter(settings.fingerprint.replace(":", "").lower()))
        self._http.headers["Connection"] = "close"
        self._connector._session = self._http
        self.deadline = deadline
        kind = sushy.auth.BasicAuth if settings.basic else sushy.auth.SessionAuth
        self._auth = kind(credentials.username, credentials.password)
        try:
            sushy.main.Sushy(settings.address, auth=self._auth, connector=self._connector)
        except BaseException:
            self.close()
            raise

    @property
    def deadline(self) -> Deadline:
        """Of what is asked next."""
        assert self._http.deadline is not None
        return self._http.deadline

    @deadline.setter
    def deadline(self, deadline: Deadline) -> None:
        self._http.deadline = deadline

    def get(self, path: str) -> dict[str, Any]:
        """A resource.

        Raises:
            Nonsense: it is no JSON object.
            Exception: see `problems.problem_of`.
        """
        return _object(self._connector.get(_own(path)))

    def get_with_etag(self, path: str) -> tuple[dict[str, Any], str]:
        """A resource and its ETag, "" where it has none."""
        response = self._connector.get(_own(path))
        found = _object(response)
        tag = response.headers.get("ETag") or found.get("@odata.etag")
        return found, tag if isinstance(tag, str) and len(tag) < 200 else ""

    def post(self, path: str, body: Mapping[str, object]) -> requests.Response:
        """Send an action, once. Never with If-Match (metal-operator#1015: 412)."""
        response: requests.Response = self._connector.post(_own(path), data=dict(body))
        return response

    def patch(self, path: str, body: Mapping[str, object], etag: str) -> requests.Response:
        """Change a resource: with its ETag where it has one."""
        response: requests.Response = self._connector.patch(_own(path), data=dict(body), etag=etag or None)
        return response

    def close(self) -> None:
        """End the session; a BMC that does not answer forgets it by itself."""
        with contextlib.suppress(Exception):
            self._http.deadline = Deadline(time.monotonic() + _CLOSE_S)
            self._auth.close()
        if isinstance(self._auth, sushy.auth.SessionAuth):
            # Else sushy tries it again when it is collected, in whatever thread that happens.
            self._auth.reset_session_attrs()
        self._connector.close()


def _own(path: str) -> str:
    """A path on the BMC itself: what a BMC names as a target is not trusted."""
    if not path.startswith("/redfish/") or len(path) > 1000 or not path.isprintable():
        raise Nonsense(f"it names {path[:80]!r} as a place of its own")
    return path


def _object(response: requests.Response) -> dict[str, Any]:
    try:
        found = json.loads(response.content)
    except (ValueError, RecursionError):
        raise Nonsense(f"its answer is no JSON: {response.content[:60]!r}") from None
    if not isinstance(found, dict):
        raise Nonsense("its answer is no JSON object")
    return found
