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
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import sushy.auth
import sushy.connector
import sushy.exceptions
import sushy.main

from slurm_lifecycle.redfish.settings import BmcSettings, Credentials
from slurm_lifecycle.redfish.transport import Context, Deadline, Forbidden, Nonsense, Session

__all__ = ["Connection", "Deadline", "Forbidden", "Nonsense"]

_RETRY_DELAY_S = 1
_CLOSE_S = 5.0
# What goes wrong is told by us, once, and without what a library thinks may be said.
for _name in ("sushy", "urllib3"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


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

    def __init__(
        self, settings: BmcSettings, credentials: Credentials, deadline: Deadline, *, keep: bool = False
    ) -> None:
        """Log in.

        Args:
            settings: how it is reached.
            credentials: name and password.
            deadline: for the login, and for what follows until `begin`.
            keep: as with `begin`.

        Raises:
            AccessError, Forbidden: the name or the password is not right.
            Exception: whatever else sushy and requests raise; `problems.problem_of` names them.
        """
        self._context = Context(ssl.PROTOCOL_TLS_CLIENT)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        verify = settings.ca_file or not (settings.insecure or settings.fingerprint)
        self._context.check_hostname = bool(verify)
        self._connector = _Connector(
            settings.address,
            verify=verify,
            server_side_retries=1,
            server_side_retries_delay=_RETRY_DELAY_S,
        )
        self._http = Session(settings, self._context)
        self._connector._session = self._http
        self._url = settings.address
        self._http.keeps = keep
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

    def begin(
        self, deadline: Deadline, before_each: Callable[[], None] | None = None, *, keep: bool = False
    ) -> None:
        """A new piece of work.

        Args:
            deadline: for all of it.
            before_each: called before each request; may raise.
            keep: one TCP connection for all of it. A handshake is most of what a GET costs (measured: 1.8 of
                2.7 ms CPU here, and more on a BMC); but a command that goes out over a connection which its
                BMC is just closing is in doubt. BMCs choke at connections that last (sushy's authors), so
                it is closed by `end`.
        """
        self._http.keeps = keep
        self._context.deadline = deadline
        self._context.in_doubt = False
        self._http.before_each = before_each

    def end(self) -> None:
        """The piece of work is over; the session stays."""
        self._http.rest()

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
                self._http.keeps = False
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
