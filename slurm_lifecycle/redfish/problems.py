"""What went wrong with a BMC, in one word and one line; never about the host behind it."""

import re

import requests
import sushy.exceptions

from slurm_lifecycle.core.machine import BmcProblem
from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.redfish.connection import Forbidden, Nonsense
from slurm_lifecycle.redfish.settings import BmcSettings, CredentialsError

_LIMIT = 300


def problem_of(error: BaseException, settings: BmcSettings) -> tuple[BmcProblem, str]:
    """The kind of a failure and what to do about it."""
    where = f"BMC {settings.address} of {settings.node}"
    for one in _chain(error):
        found = _kind(one, settings)
        if found is not None:
            return found[0], plain_line(f"{where}: {found[1]}", _LIMIT)
    words = f"answers nonsense ({type(error).__name__}: {error})"
    return BmcProblem.NONSENSE, plain_line(f"{where}: {words}", _LIMIT)


def _chain(error: BaseException | None) -> list[BaseException]:
    """The error and what it came from, the outermost first.

    What is further in may be another matter, which this one only came after: a login that timed out, after
    the 401 of a session that had ended.
    """
    found: list[BaseException] = []
    while error is not None and len(found) < 10:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _kind(error: BaseException, settings: BmcSettings) -> tuple[BmcProblem, str] | None:
    if isinstance(error, CredentialsError):
        return BmcProblem.CREDENTIALS, str(error)
    if isinstance(error, Nonsense):
        return BmcProblem.NONSENSE, f"answers nonsense: {error}; is the address that of a BMC?"
    if isinstance(error, requests.exceptions.SSLError):
        return BmcProblem.TLS, _tls(settings)
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return BmcProblem.UNREACHABLE, "does not take the connection: is it on, and its network?"
    if isinstance(error, requests.exceptions.Timeout):
        return BmcProblem.TIMEOUT, "does not answer in time"
    if isinstance(error, requests.exceptions.ConnectionError):
        refused = "NewConnectionError" in repr(error) or "NameResolution" in repr(error)
        if refused:
            return BmcProblem.UNREACHABLE, "cannot be reached: check its address and network"
        return BmcProblem.TIMEOUT, "ended the connection without an answer"
    if isinstance(error, Forbidden):
        return BmcProblem.AUTH, f"does not let this account do that ({_said(error)}): give it a role that may"
    if isinstance(error, sushy.exceptions.AccessError):
        return BmcProblem.AUTH, "refuses the name or the password: correct the credentials"
    if isinstance(error, sushy.exceptions.ResourceNotFoundError):
        profile = settings.profile
        return BmcProblem.NONSENSE, f"has no {_path(error)}: is profile {profile!r} the right one?"
    if isinstance(error, sushy.exceptions.ServerSideError):
        return BmcProblem.BUSY, f"answers {error.status_code}, it may be starting or out of sessions"
    if isinstance(error, sushy.exceptions.HTTPError):
        return BmcProblem.BUSY, f"refuses with {error.status_code}: {_said(error)}"
    return None


def _said(error: sushy.exceptions.HTTPError) -> str:
    return str(error.detail or error.body or "no reason given")[:_LIMIT]


def _path(error: sushy.exceptions.HTTPError) -> str:
    found = re.search(r"/redfish/[!-~]+", str(error))
    return found[0] if found else "such resource"


def _tls(settings: BmcSettings) -> str:
    if settings.fingerprint:
        return "shows another certificate than the one whose fingerprint is pinned"
    if settings.ca_file:
        return f"shows a certificate that is not by an authority in {settings.ca_file}, or for another name"
    return "shows a certificate that no authority of this host knows: set ca_file or fingerprint"
