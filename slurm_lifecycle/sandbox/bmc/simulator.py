"""One emulated BMC: who may ask, what is there, what is done, and what is wrong with it."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_lifecycle.sandbox.bmc import actions
from slurm_lifecycle.sandbox.bmc.chassis import Chassis
from slurm_lifecycle.sandbox.bmc.expand import Expansion
from slurm_lifecycle.sandbox.bmc.faults import Faults
from slurm_lifecycle.sandbox.bmc.hardware import collection, system_path
from slurm_lifecycle.sandbox.bmc.health import Health
from slurm_lifecycle.sandbox.bmc.http import Reply, Request
from slurm_lifecycle.sandbox.bmc.layout import ROOT
from slurm_lifecycle.sandbox.bmc.power import Power, error
from slurm_lifecycle.sandbox.bmc.profiles import PROFILES
from slurm_lifecycle.sandbox.bmc.sessions import ACCOUNTS, SESSIONS, Sessions
from slurm_lifecycle.sandbox.bmc.tasks import TASKS, Tasks
from slurm_lifecycle.sandbox.bmc.tree import build
from slurm_lifecycle.sandbox.bmc.updates import Updates

_SEEN_KEPT = 2000
_CHANGES = ("POST", "PATCH", "DELETE")


@dataclass(slots=True)
class Seen:
    """One request, as it came and as it was answered; a password in it is not kept.

    Attributes:
        done: it took effect, whatever was answered.
    """

    method: str
    path: str
    body: Any
    at: float
    status: int = 0
    done: bool = False
    headers: dict[str, str] = field(default_factory=dict)


class BmcSimulator:
    """An emulated BMC.

    Attributes:
        requests: the last ones, oldest first. faults: what is wrong with it, changed at any time.
        serial: of the machine that it says it belongs to.
        erased: drives that were truly erased, by path, and how.
        tpm_cleared: how often the TPM was.
        bios_next, bios_job: attributes for the next start, and whether they will come into force.
        dark_until: until then it answers nothing.
    """

    def __init__(
        self,
        profile: str,
        chassis: Chassis,
        *,
        serial: str,
        username: str = "admin",
        password: str = "Emulated-1",
        gpus: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A BMC without a fault.

        Args:
            profile: a key of `PROFILES`.
            chassis: the machine behind it.
            serial: the machine's serial number.
            username: of its administrator.
            password: of its administrator.
            gpus: how many the machine has.
            clock: for sessions, tasks and whatever takes time.
        """
        self.profile = PROFILES[profile]
        self.serial = serial
        self.faults = Faults()
        self.requests: list[Seen] = []
        self.clock = clock
        self.power = Power(self.profile, chassis, self.faults, clock)
        self.sessions = Sessions(self.profile, self.faults, clock, username, password)
        self.tasks = Tasks(self.faults, clock)
        self.updates = Updates(self.profile, self.faults)
        self.health = Health(self.profile, gpus)
        self.erased: dict[str, str] = {}
        self.tpm_cleared = 0
        self.bios_next: dict[str, Any] = {}
        self.bios_job = False
        self.dark_until = float("-inf")
        self._tree = build(profile, gpus)
        number = zlib.crc32(serial.encode())
        octets = f"{number:08x}"
        self._own = {"{m}": f"{number % 100_000:05d}", "{x}": f"{octets[:2]}:{octets[2:4]}:{octets[4:6]}"}
        self.power.on_start.append(lambda: actions.starts(self))
        self.power.on_mains.append(lambda: actions.mains(self))

    # ---- for tests and the sandbox

    def inject(self, name: str, *, remaining: int | None = None, path: str = "", **parameters: Any) -> None:
        """Something is wrong from now on (`faults.KINDS`)."""
        self.faults.inject(name, remaining=remaining, path=path, **parameters)

    def clear(self, name: str = "") -> None:
        """A fault is gone, or all are."""
        self.faults.clear(name)

    def set_health(self, part: str, health: str) -> None:
        """From now on a part (`psu0`, `fan1`, `temp`, `gpu3`, `dimm2`, `drive1`, `system`) is as told.

        Args:
            part: one of `health.names()`.
            health: `OK`, `Warning`, `Critical` or `Absent`.

        Raises:
            ValueError: this machine has no such part, or there is no such health.
        """
        self.health.set(part, health)

    def set_part(self, part: str, serial: str) -> None:
        """A part was exchanged: from now on it tells this serial number.

        Raises:
            ValueError: this machine has no such part.
        """
        self.health.replace(part, serial)

    def log_event(self, severity: str, message: str, created: str = "") -> None:
        """Add an entry to the event log: `OK`, `Warning` or `Critical`; by default it was created now."""
        self.health.log(severity, message, created)

    def posts(self, end: str = "ComputerSystem.Reset") -> list[Seen]:
        """POSTs to paths with that end that took effect."""
        return [one for one in self.requests if one.method == "POST" and one.path.endswith(end) and one.done]

    # ---- answering

    async def answer(self, request: Request) -> Reply:
        """The answer to one request."""
        seen = Seen(request.method, request.path, _kept(request), self.clock(), headers=_headers(request))
        self.requests.append(seen)
        del self.requests[:-_SEEN_KEPT]
        reply = self._answer(request, seen)
        seen.status = 0 if reply.silent or reply.drop else reply.status
        if late := self.faults.strikes("slow", request.path):
            reply.wait_s = float(late.get("seconds", 20.0))
        reply.dribble = self.faults.strikes("dribble", request.path) is not None
        return reply

    def _answer(self, request: Request, seen: Seen) -> Reply:
        if self.clock() < self.dark_until or self.faults.strikes("hang", request.path):
            return Reply(silent=True)
        odd = self.faults.strikes("nonsense", request.path)
        if odd is not None:
            return _nonsense(str(odd.get("form", "html")))
        if busy := self._busy(request):
            return busy
        if request.method == "POST" and request.path == SESSIONS:
            return self.sessions.login(request)
        if request.path != ROOT and not self.sessions.allows(request):
            return error(401, "NoValidSession", "a session is needed")
        if request.method == "GET":
            return self._get(request)
        if request.method not in _CHANGES:
            return error(405, "ActionNotSupported", "this method is not known here")
        return self._change(request, seen)

    def _busy(self, request: Request) -> Reply | None:
        busy = self.faults.has("busy-503", request.path)
        if busy and busy.get("method", request.method) == request.method:
            self.faults.strikes("busy-503", request.path)
            return error(503, "ServiceTemporarilyUnavailable", "try again later")
        boots = self.faults.has("boot-503")
        if boots and self.clock() < self.power.started_at + float(boots.get("seconds", 60.0)):
            return error(503, "ServiceTemporarilyUnavailable", "the service starts")
        if self.dead(request.path):
            return error(503, "HMCCommuicationFailed", "the baseboard does not answer")
        return None

    def dead(self, path: str) -> bool:
        """Whether a resource is the baseboard's, and that does not answer while the host is off."""
        baseboard = "/HGX_" in path and self.faults.has("hmc-503") is not None
        return baseboard and self.power.chassis.power() == "off"

    def _change(self, request: Request, seen: Seen) -> Reply:
        login = request.path.startswith(SESSIONS)
        if not login and self.faults.strikes("timeout-before-accept", request.path):
            return Reply(silent=True)
        before = dict(self.power.override)
        reply = self._etag_problem(request) or actions.change(self, request)
        seen.done = reply.status < 300 or self.power.override != before
        if login:
            return reply
        if self.faults.strikes("timeout-after-accept", request.path):
            return Reply(reply.status, silent=True)
        if self.faults.strikes("drop-connection", request.path):
            return Reply(reply.status, drop=True)
        return reply

    def _etag_problem(self, request: Request) -> Reply | None:
        sent = request.headers.get("if-match")
        if request.method == "POST":
            if sent is not None and self.profile.action_if_match:
                return error(412, "PreconditionFailed", "If-Match on an action")
            return None
        if request.method != "PATCH":
            return None
        needs = self.profile.settings_etag and request.path == self.profile.settings
        if sent is None and (needs or self.faults.has("etag-428")):
            return error(428, "PreconditionRequired", "If-Match is missing")
        wrong = sent is None or sent.removeprefix("W/") != self.etag(request.path)
        if (sent is not None and wrong) or (self.faults.has("etag-412") and wrong):
            return error(412, "PreconditionFailed", "If-Match does not match")
        return None

    # ---- reading

    def _get(self, request: Request) -> Reply:
        path = request.path
        if path.startswith(f"{SESSIONS}/"):
            return self.sessions.show(path.rsplit("/", 1)[-1])
        if path.startswith(f"{TASKS}/"):
            return self.tasks.show(path.rsplit("/", 1)[-1])
        if path.startswith(f"{ACCOUNTS}/"):
            return self.sessions.account(path.rsplit("/", 1)[-1])
        shown = self.resource(path)
        if shown is None:
            return error(404, "ResourceMissingAtURI", f"{path} is not there")
        headers = {"ETag": f"W/{self.etag(path)}"} if self._has_etag(path) else {}
        if headers:
            shown["@odata.etag"] = headers["ETag"]
        asked = Expansion.asked(request.query, self.profile.layout.expand_levels)
        if isinstance(asked, str):
            return error(501, "QueryNotSupported", asked)
        if asked is not None:
            shown = asked.expand(shown, lambda one: None if self.dead(one) else self.resource(one))
        return Reply(200, shown, headers)

    def _has_etag(self, path: str) -> bool:
        always = self.profile.etags or self.faults.has("etag-412") or self.faults.has("etag-428")
        return bool(always) or (self.profile.settings_etag and path == self.profile.settings)

    def etag(self, path: str) -> str:
        """The ETag of a resource: it changes with what is shown."""
        return f'"{hash(json.dumps(self.resource(path), sort_keys=True, default=str)) & 0xFFFFFFFF:08x}"'

    def resource(self, path: str) -> dict[str, Any] | None:
        """A resource as it is now, None where there is none."""
        members: dict[str, Callable[[], list[str]]] = {
            SESSIONS: self.sessions.members,
            TASKS: self.tasks.members,
            ACCOUNTS: lambda: [f"{ACCOUNTS}/{number}" for number in self.sessions.accounts],
        }
        if path in members:
            return {"@odata.id": path, **collection(members[path]())}
        base = self._tree.get(path)
        if base is None:
            return self.health.log_entry(path)
        shown: dict[str, Any] = self._copy(base)
        self.tasks.settle()
        self.health.lay_over(path, shown)
        self.updates.lay_over(path, shown)
        if path == system_path(self.profile):
            self._live_system(shown)
        elif path == self.profile.settings:
            shown["Boot"].update(self.power.shown())
        elif path == f"{system_path(self.profile)}/ResetActionInfo":
            shown["Parameters"][0]["AllowableValues"] = self.power.offered()
        elif path.endswith(f"/Bios/{self.profile.bios_settings}"):
            shown["Attributes"] = dict(self.bios_next)
        if path == (self.profile.serial_at or system_path(self.profile)):
            self._tell_serial(shown)
        return shown

    def _copy(self, value: Any) -> Any:
        """A value of the shared tree, with what is this machine's own put in."""
        if isinstance(value, Mapping):
            return {key: self._copy(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._copy(one) for one in value]
        if isinstance(value, str) and "{" in value:
            for mark, own in self._own.items():
                value = value.replace(mark, own)
        return value

    def _tell_serial(self, shown: dict[str, Any]) -> None:
        if self.faults.has("no-serial"):
            shown.pop("SerialNumber", None)
        else:
            shown["SerialNumber"] = "OTHER-0001" if self.faults.has("wrong-serial") else self.serial

    def _live_system(self, shown: dict[str, Any]) -> None:
        shown["PowerState"] = self.power.state()
        if not self.profile.settings:
            shown["Boot"].update(self.power.shown())
        if self.faults.has("missing-boot"):
            del shown["Boot"]
        if self.profile.progress:
            booted = self.power.chassis.power() == "on"
            shown["BootProgress"] = {"LastState": self.profile.progress if booted else "None"}
        reset = shown["Actions"]["#ComputerSystem.Reset"]
        if "ResetType@Redfish.AllowableValues" in reset:
            reset["ResetType@Redfish.AllowableValues"] = self.power.offered()


def _kept(request: Request) -> Any:
    body = request.json()
    if isinstance(body, dict):
        return {key: "(hidden)" if key == "Password" else value for key, value in body.items()}
    return body


def _headers(request: Request) -> dict[str, str]:
    return {key: value for key, value in request.headers.items() if key in ("if-match", "x-auth-token")}


def _nonsense(form: str) -> Reply:
    forms: dict[str, bytes] = {
        "html": b"<html><body>502 Bad Gateway</body></html>",
        "truncated": b'{"@odata.id": "/redfish/v1/Systems/1", "Power',
        "list": b"[1, 2, 3]",
        "types": b'{"PowerState": 7, "SerialNumber": {"a": 1}, "Boot": [], "Members": "x", "Sessions": 3}',
        "empty": b"",
        "binary": b"\xff\xfe\x00\x01" * 8,
        "huge": b'{"a": "' + b"x" * (8 * 1024 * 1024) + b'"}',
        "deep": b"[" * 20_000,
    }
    return Reply(200, raw=forms[form])
