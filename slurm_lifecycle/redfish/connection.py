"""A session with one BMC: sushy over a transport that is bounded in time and size, whatever the BMC does.

What sushy and requests do by themselves, and what is done here in its place:

| they | here |
|---|---|
| send a POST again that timed out (ten times by default) | once |
| send a POST again that was answered SYS518 (iDRAC) or InvalidOperationForSystemState (iLO) | once |
| fall back to basic authentication where no session is left | an error |
| open a further session for each 403 and forget the one before, which stays open | the 403 is told |
| log in again in order to end a session that has ended | it is let be |
| count a read time-out from byte to byte | from the beginning of the whole piece of work |
| follow a redirect anywhere | a GET, on the BMC itself |
| read a body whatever its length | 4 MiB at most |
"""

import contextlib
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

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
_LEAST_S = 0.1
_REDIRECTS = 3
# After these the command was surely not carried out: a login, or the right ETag, is what is missing.
_NOT_DONE = (401, 412, 428)
# What goes wrong is told by us, once, and without what a library thinks may be said.
for _name in ("sushy", "urllib3"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


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

    context: "_Context"

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


class _Context(ssl.SSLContext):
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
        assert isinstance(self.ssl_context, _Context)
        if self.sock is not None:
            self.ssl_context.deadline.watch(self.sock)

    def request(self, *args: Any, **options: Any) -> None:
        # Connected by now, and the certificate was looked at: from the first byte on it may be carried out.
        assert isinstance(self.ssl_context, _Context)
        self.ssl_context.in_doubt |= self.ssl_context.at_stake
        super().request(*args, **options)


class _Pool(HTTPSConnectionPool):
    ConnectionCls = _Connection


class _Adapter(HTTPAdapter):
    """Makes such connections, and pins a certificate where one is to be pinned."""

    def __init__(self, context: _Context, fingerprint: str) -> None:
        self._options: dict[str, Any] = {"ssl_context": context}
        if fingerprint:
            self._options |= {"assert_fingerprint": fingerprint, "assert_hostname": False}
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **{**options, **self._options})
        self.poolmanager.pool_classes_by_scheme = {"https": _Pool}


class _Session(requests.Session):
    """Bounded: in time as a whole, in size, to one host; nothing of the environment is used.

    Attributes:
        before_each: called before each request; may raise.
        command: method and URL of the command that is being sent.
    """

    def __init__(self, settings: BmcSettings, context: _Context) -> None:
        super().__init__()
        self.trust_env = False
        # As sushy does: BMCs choke at connections that are kept (its authors' field studies).
        self.headers["Connection"] = "close"
        self.context = context
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
        self.context.at_stake = (method, url) == self.command
        bounded = {"timeout": tuple(min(one, left_s) for one in self._timeouts_s), "stream": True}
        response = super().request(method, url, **{**options, **bounded, "allow_redirects": False})
        self._read(response)
        return response

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


class _Connector(sushy.connector.Connector):  # type: ignore[misc]
    """Sends nothing again that is not known to have done nothing."""

    def check_retry_on_exception(self, _exception_msg: object) -> bool:
        return False


class _SessionAuth(sushy.auth.SessionAuth):  # type: ignore[misc]
    """Logs in by a session, which is ended at the BMC itself wherever that says it is.

    Attributes:
        refused: the name or the password was.
    """

    refused = False
    _session_resource_id: object

    def _do_authenticate(self) -> None:
        try:
            super()._do_authenticate()
        except (sushy.exceptions.AccessError, Forbidden):
            self.refused = True
            raise
        if isinstance(self._session_resource_id, str):
            self._session_resource_id = urlsplit(self._session_resource_id).path


class Connection:
    """A BMC that is logged in to."""

    def __init__(self, settings: BmcSettings, credentials: Credentials, deadline: Deadline) -> None:
        """Log in.

        Raises:
            AccessError, Forbidden: the name or the password is not right.
            Exception: whatever else sushy and requests raise; `problems.problem_of` names them.
        """
        self._context = _Context(ssl.PROTOCOL_TLS_CLIENT)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        verify = settings.ca_file or not (settings.insecure or settings.fingerprint)
        self._context.check_hostname = bool(verify)
        self._connector = _Connector(
            settings.address,
            verify=verify,
            server_side_retries=1,
            server_side_retries_delay=_RETRY_DELAY_S,
        )
        self._http = _Session(settings, self._context)
        self._connector._session = self._http
        self._url = settings.address
        self.deadline = deadline
        kind = sushy.auth.BasicAuth if settings.basic else _SessionAuth
        self._auth = kind(credentials.username, credentials.password)
        try:
            sushy.main.Sushy(settings.address, auth=self._auth, connector=self._connector)
        except BaseException:
            self.close()
            raise

    @property
    def deadline(self) -> Deadline:
        """Of what is asked next."""
        return self._context.deadline

    @deadline.setter
    def deadline(self, deadline: Deadline) -> None:
        self._context.deadline = deadline

    def begin(self, deadline: Deadline, before_each: Callable[[], None] | None) -> None:
        """A new piece of work: its deadline, and what is looked at before each request."""
        self._context.deadline = deadline
        self._context.in_doubt = False
        self._http.before_each = before_each

    @property
    def in_doubt(self) -> bool:
        """Whether the last command may have been carried out, as far as no status says more."""
        return self._context.in_doubt

    def refuses_login(self, error: BaseException) -> bool:
        """Whether an error means that the name or the password is wrong: not to be tried again and again."""
        if isinstance(self._auth, _SessionAuth):
            return self._auth.refused
        return isinstance(error, sushy.exceptions.AccessError)

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
        with self._command("POST", path):
            response: requests.Response = self._connector.post(_own(path), data=dict(body))
        return response

    def patch(self, path: str, body: Mapping[str, object], etag: str) -> requests.Response:
        """Change a resource: with its ETag where it has one."""
        with self._command("PATCH", path):
            response: requests.Response = self._connector.patch(
                _own(path), data=dict(body), etag=etag or None
            )
        return response

    @contextlib.contextmanager
    def _command(self, method: str, path: str) -> Iterator[None]:
        self._context.in_doubt = False
        self._http.command = method, urljoin(self._url, _own(path))
        try:
            yield
        finally:
            self._http.command = None

    def close(self) -> None:
        """End the session; a BMC that does not answer forgets it by itself."""
        if isinstance(self._auth, _SessionAuth):
            place = self._auth.get_session_resource_id()
            if isinstance(place, str) and place:
                self.deadline, self._http.before_each = Deadline(time.monotonic() + _CLOSE_S), None
                with contextlib.suppress(Exception):
                    # A session that has ended is not opened again in order to be ended.
                    self._connector.delete(place, allow_reauth=False)
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
