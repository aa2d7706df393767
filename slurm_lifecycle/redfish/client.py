"""One BMC: what it says, and one command to it at a time.

What comes of a command, by what came back:

| came back | outcome |
|---|---|
| 2xx, a Task too | accepted; no evidence of anything, the state is read |
| 4xx, 503 | refused: it says that it did nothing (404 to a change of Boot: ambiguous, it may be half done) |
| 405, 501, no such action or value | unsupported |
| no connection, no login, wrong certificate, another machine, no time left | refused: it was never sent |
| 500, 502, 504, a time-out or a lost connection after that, nonsense | ambiguous |

No command is ever sent twice by the client itself: whoever asks again has looked at the state in between.
The one exception is a session that has ended: 401 says that nothing was done, and sushy logs in and repeats
it once.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sushy.exceptions

from slurm_lifecycle.core.machine import (
    BmcProblem,
    BootOverride,
    MachineCommand,
    MachineReading,
    PowerState,
    StepOutcome,
)
from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.ports import Sent
from slurm_lifecycle.redfish.connection import Connection, Deadline, Nonsense
from slurm_lifecycle.redfish.problems import never_sent, problem_of
from slurm_lifecycle.redfish.profiles import PROFILES, Profile
from slurm_lifecycle.redfish.settings import BmcSettings, Credentials

# A password that is wrong is not tried again and again: BMCs lock accounts (iDRAC after three tries).
_AUTH_REST_S = 300.0
# A session that nobody used for so long is closed; a power cycle looks every ten seconds.
IDLE_S = 20.0
# Below this no command is begun any more: its answer could not be waited for.
_LEAST_S = 5.0
_LOCK_S = 1.0
_WORD_LIMIT = 64
_OTHER_MACHINE = "another machine"
_UNSUPPORTED = (405, 501)
_NOTHING_DONE = range(400, 500)

_POWER = {
    "On": PowerState.ON,
    "Off": PowerState.OFF,
    "PoweringOn": PowerState.POWERING_ON,
    "PoweringOff": PowerState.POWERING_OFF,
}
_FIELDS = ("BootSourceOverrideEnabled", "BootSourceOverrideTarget", "BootSourceOverrideMode")


class _Busy(Exception):
    """Somebody else is asking this BMC just now."""


class _Rests(Exception):
    """It refused the login a while ago, with these very credentials."""


class RedfishBmc:
    """The BMC of one node; used by one thread at a time, whoever else comes waits a moment or is told so."""

    def __init__(self, settings: BmcSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Nothing is asked yet.

        Args:
            settings: how it is reached.
            clock: wall time, for readings.
        """
        self.settings = settings
        self.profile: Profile = PROFILES[settings.profile]
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._used_at = 0.0
        self._refused: tuple[float, Credentials, str] | None = None

    # ---- a connection

    @contextmanager
    def connected(self, deadline: Deadline) -> Iterator[Connection]:
        """A connection that is logged in, for one piece of work; it stays open for the next one for a while.

        Raises:
            Exception: whatever went wrong; `problems.problem_of` names it.
        """
        if not self._lock.acquire(timeout=max(0.0, min(_LOCK_S, deadline.left_s()))):
            raise _Busy
        try:
            connection = self._login(deadline)
            try:
                yield connection
            except sushy.exceptions.HTTPError as error:
                # An answer: the session is as good as before, unless it is just that which is wrong.
                if isinstance(error, sushy.exceptions.AccessError):
                    self._drop()
                raise
            except BaseException:
                self._drop()
                raise
            self._used_at = time.monotonic()
        finally:
            self._lock.release()

    def _login(self, deadline: Deadline) -> Connection:
        if self._connection is not None:
            self._connection.deadline = deadline
            return self._connection
        credentials = self.settings.credentials()
        if self._refused is not None:
            until, refused, detail = self._refused
            if refused == credentials and time.monotonic() < until:
                raise _Rests(detail)
            self._refused = None
        try:
            self._connection = Connection(self.settings, credentials, deadline)
        except sushy.exceptions.AccessError as error:
            detail = problem_of(error, self.settings)[1]
            self._refused = (time.monotonic() + _AUTH_REST_S, credentials, detail)
            raise
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self, *, idle_for_s: float = 0.0) -> None:
        """End the session, if nobody used it for so long; not while somebody does."""
        if self._connection is None or not self._lock.acquire(blocking=False):
            return
        try:
            if time.monotonic() - self._used_at >= idle_for_s:
                self._drop()
        finally:
            self._lock.release()

    def problem(self, error: BaseException) -> tuple[BmcProblem, str]:
        """What went wrong in one word and one line."""
        if isinstance(error, _Busy):
            return BmcProblem.BUSY, f"BMC of {self.settings.node}: somebody else asks it just now"
        if isinstance(error, _Rests):
            return BmcProblem.AUTH, str(error)
        return problem_of(error, self.settings)

    # ---- reading

    def read(self, deadline: Deadline) -> MachineReading:
        """Power, serial number, boot override; never raises."""
        asked_at, node = self._clock(), self.settings.node
        try:
            with self.connected(deadline) as connection:
                system = connection.get(self.profile.system)
                power, serial = _power(system), self._serial(connection, system)
                if wrong := self._wrong(serial):
                    return MachineReading(
                        node, asked_at, serial=serial, problem=BmcProblem.WRONG_MACHINE, detail=wrong
                    )
                boot = self._boot(connection, system)
        except Exception as error:
            problem, detail = self.problem(error)
            return MachineReading(node, asked_at, problem=problem, detail=detail)
        progress = system.get("BootProgress")
        state = _word(progress, "LastState") if isinstance(progress, dict) else ""
        return MachineReading(node, asked_at, power, serial, boot, state)

    def _boot(self, connection: Connection, system: Mapping[str, Any]) -> BootOverride | None:
        """The override; None where its resource cannot be read, which must not hide the power."""
        try:
            fields = self._owner_of_boot(connection, system)[1].get("Boot")
        except sushy.exceptions.HTTPError:
            return None
        return _override(fields) if isinstance(fields, dict) else None

    def _owner_of_boot(
        self, connection: Connection, system: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Any], str]:
        """Path, content and ETag of the resource that owns Boot."""
        path = self.profile.settings or _settings_path(system)
        if path and path != self.profile.system:
            found, etag = connection.get_with_etag(path)
            if self.profile.settings or "Boot" in found:
                return path, found, etag
        found, etag = connection.get_with_etag(self.profile.system)
        return self.profile.system, found, etag

    def _serial(self, connection: Connection, system: Mapping[str, Any]) -> str:
        path = self.profile.serial_at
        return _word(connection.get(path) if path else system, self.profile.serial_key)

    def _wrong(self, serial: str) -> str:
        """Why this is not the BMC of the machine on record."""
        recorded = self.settings.serial
        if not recorded or serial == recorded:
            return ""
        says = f"serial {serial!r}" if serial else "no serial number"
        node = self.settings.node
        return (
            f"BMC {self.settings.address} of {node} tells {says}, on record is {recorded!r}: "
            f"check the cabling; `slurm-lifecycle bmc record {node} --replace` where it was exchanged"
        )

    # ---- commands

    def send(self, command: MachineCommand, deadline: Deadline) -> Sent:
        """Send one command, at most once; never raises."""
        node = self.settings.node
        if not self.settings.serial:
            why = f"no serial number of {node} is on record: `slurm-lifecycle bmc record {node}`"
            return Sent(StepOutcome.REFUSED, why)
        handed_over = False
        try:
            with self.connected(deadline) as connection:
                system = connection.get(self.profile.system)
                if wrong := self._wrong(self._serial(connection, system)):
                    return Sent(StepOutcome.REFUSED, wrong)
                make = self._request(command, connection, system)
                if isinstance(make, Sent):
                    return make
                if deadline.left_s() < _LEAST_S:
                    return Sent(StepOutcome.REFUSED, "its BMC is so slow that no time was left to send it")
                handed_over = True
                make()
        except Exception as error:
            return self._came_of(command, error, handed_over)
        return Sent(StepOutcome.ACCEPTED)

    def _came_of(self, command: MachineCommand, error: Exception, handed_over: bool) -> Sent:
        detail = self.problem(error)[1]
        if not handed_over or never_sent(error):
            return Sent(StepOutcome.REFUSED, detail)
        status = error.status_code if isinstance(error, sushy.exceptions.HTTPError) else 0
        if status in _UNSUPPORTED:
            return Sent(StepOutcome.UNSUPPORTED, detail)
        # OpenBMC sets one field of Boot after another, and names the first that it does not know.
        half_done = status == 404 and command in (MachineCommand.BOOT_ONCE, MachineCommand.BOOT_CLEAR)
        if not half_done and (status in _NOTHING_DONE or status == 503):
            return Sent(StepOutcome.REFUSED, detail)
        return Sent(StepOutcome.AMBIGUOUS, detail)

    def _request(
        self, command: MachineCommand, connection: Connection, system: Mapping[str, Any]
    ) -> Callable[[], object] | Sent:
        profile = self.profile
        if command is MachineCommand.AC_CYCLE:
            cycle = profile.ac_cycle
            if cycle is None:
                return Sent(
                    StepOutcome.UNSUPPORTED,
                    f"profile {profile.name} has no AC cycle: cut its mains at the PDU or by hand",
                )
            if cycle.needs_off and _power(system) is not PowerState.OFF:
                return Sent(StepOutcome.REFUSED, "its host has to be off for an AC cycle")
            return lambda: connection.post(cycle.path, cycle.body)
        if command in (MachineCommand.BOOT_ONCE, MachineCommand.BOOT_CLEAR):
            path, found, etag = self._owner_of_boot(connection, system)
            boot = found.get("Boot")
            if not isinstance(boot, dict):
                return Sent(StepOutcome.UNSUPPORTED, f"{path} has no Boot")
            body = {"Boot": self._boot_fields(command, boot)}
            return lambda: connection.patch(path, body, etag)
        wanted = {
            MachineCommand.GRACEFUL_OFF: profile.graceful,
            MachineCommand.FORCE_OFF: profile.force,
            MachineCommand.ON: profile.on,
        }.get(command)
        if wanted is None:
            return Sent(StepOutcome.UNSUPPORTED, f"{command.value} is nothing for a BMC")
        target, offered = self._reset_action(connection, system)
        kind = next((one for one in wanted if not offered or one in offered), None)
        if kind is None:
            return Sent(StepOutcome.UNSUPPORTED, f"it offers {','.join(sorted(offered))[:120]} only")
        return lambda: connection.post(target, {"ResetType": kind})

    def _boot_fields(self, command: MachineCommand, boot: Mapping[str, Any]) -> dict[str, str]:
        if command is MachineCommand.BOOT_CLEAR:
            fields = dict(zip(_FIELDS[:2], ("Disabled", "None"), strict=True))
        else:
            fields = dict(zip(_FIELDS[:2], ("Once", self.profile.boot_target), strict=True))
        mode = boot.get(_FIELDS[2])
        if _FIELDS[2] not in boot:
            # An ARM host has none; OpenBMC answers 404 for it after it took the others.
            return fields
        if self.profile.mode_only_if_different and (
            mode == self.profile.boot_mode or command is MachineCommand.BOOT_CLEAR
        ):
            return fields
        return {**fields, _FIELDS[2]: self.profile.boot_mode}

    def _reset_action(self, connection: Connection, system: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
        """Where a Reset goes, and its values; none where it does not tell: then the standard's are tried."""
        actions = system.get("Actions")
        reset = actions.get("#ComputerSystem.Reset") if isinstance(actions, dict) else None
        if not isinstance(reset, dict) or not isinstance(reset.get("target"), str):
            raise Nonsense(f"{self.profile.system} has no Reset action")
        values = reset.get("ResetType@Redfish.AllowableValues")
        info = reset.get("@Redfish.ActionInfo")
        if not isinstance(values, list) and isinstance(info, str):
            try:
                values = _parameter_values(connection.get(info))
            except sushy.exceptions.HTTPError:
                values = []
        known = values if isinstance(values, list) else []
        return reset["target"], frozenset(one for one in known if isinstance(one, str))


def _parameter_values(info: Mapping[str, Any]) -> list[Any]:
    rows = info.get("Parameters")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and row.get("Name") == "ResetType":
            values = row.get("AllowableValues")
            return values if isinstance(values, list) else []
    return []


def _settings_path(system: Mapping[str, Any]) -> str:
    settings = system.get("@Redfish.Settings")
    link = settings.get("SettingsObject") if isinstance(settings, dict) else None
    path = link.get("@odata.id") if isinstance(link, dict) else None
    return path if isinstance(path, str) else ""


def _power(system: Mapping[str, Any]) -> PowerState:
    """The power as it says it.

    Raises:
        Nonsense: in no word at all.
    """
    found = system.get("PowerState")
    if not isinstance(found, str):
        raise Nonsense(f"its PowerState is {found!r}")
    return _POWER.get(found, PowerState.UNKNOWN)


def _word(resource: Mapping[str, Any], key: str) -> str:
    found = resource.get(key)
    return plain_line(found, _WORD_LIMIT) if isinstance(found, str) else ""


def _override(fields: Mapping[str, Any]) -> BootOverride:
    return BootOverride(*(_word(fields, key) for key in _FIELDS))
