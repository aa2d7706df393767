"""One BMC: what it says, and one command to it at a time.

What comes of a command, by what came back:

| came back | outcome |
|---|---|
| 2xx, a Task too | accepted; no evidence of anything, the state is read |
| 4xx, 503 | refused: it says that it did nothing (404 to a change of Boot: ambiguous, it may be half done) |
| 405, 501, no such action or value | unsupported |
| whatever it was, before the first byte of the command was written | refused: it was never sent |
| 408, 5xx, a time-out, a lost connection or nonsense after that | ambiguous |

How a Task ends is not waited for: a captured DGX H100 ends one as Exception with status OK, an iLO and an
iDRAC take it away when it ends (metal-operator#668, iDRAC-Redfish-Scripting#160), and a Task that ended well
is no evidence either. The state is.

No command is ever sent twice by the client itself: whoever asks again has looked at the state in between.
Two exceptions, both after an answer that says that nothing was done: 401, a session that has ended (it logs
in and repeats it once), and 412 to a weak ETag (a change of Boot is sent once more with the strong one).
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
from slurm_lifecycle.redfish.connection import Connection, Deadline, Forbidden, Nonsense
from slurm_lifecycle.redfish.parsing import (
    boot_fields,
    boot_override,
    boot_targets,
    parameter_values,
    power_state,
    settings_path,
    word,
)
from slurm_lifecycle.redfish.problems import problem_of
from slurm_lifecycle.redfish.profiles import PROFILES, Profile
from slurm_lifecycle.redfish.settings import BmcSettings, Credentials

# A password that is wrong is not tried again and again: BMCs lock accounts (iDRAC after three tries).
_AUTH_REST_S = 300.0
# A session that nobody used for so long is closed; a power cycle looks every ten seconds.
IDLE_S = 20.0
# Below this no command is begun any more: its answer could not be waited for.
_LEAST_S = 5.0
# How long is waited for somebody who asks this BMC just now. A command goes first: whatever else is under
# way gives way at its next request, so that one answer is waited for at most.
_LOCK_S, _COMMAND_LOCK_S = 1.0, 30.0
_UNSUPPORTED = (405, 501)


class _Busy(Exception):
    """Somebody else is asking this BMC just now."""


class _Rests(Exception):
    """It refused the login a while ago, with these very credentials."""


class RedfishBmc:
    """The BMC of one node; used by one thread at a time, whoever else comes waits a moment or is told so.

    Attributes:
        silent: what was asked last got no answer.
    """

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
        self.silent = False
        self._refused: tuple[float, Credentials, str] | None = None
        self._credentials: Credentials | None = None
        # Those that wait for their turn or have just got it.
        self._commands: list[Deadline] = []

    # ---- a connection

    @contextmanager
    def connected(self, deadline: Deadline, *, command: bool = False) -> Iterator[Connection]:
        """A connection that is logged in, for one piece of work; it stays open for the next one for a while.

        Args:
            deadline: for all of it.
            command: it goes before any other work with this BMC, which ends as busy.

        Raises:
            Exception: whatever went wrong; `problem` names it.
        """
        with self._turn(deadline, command=command):
            self.silent = True
            connection = self._login(deadline, keep=not command)
            connection.begin(deadline, None if command else self._give_way, keep=not command)
            try:
                yield connection
            except _Busy:
                raise
            except (sushy.exceptions.AccessError, Forbidden) as error:
                if connection.refuses_login(error):
                    self._remember(error)
                self._drop()
                raise
            except sushy.exceptions.HTTPError:
                # An answer: the session is as good as before.
                self.silent = False
                raise
            except BaseException:
                self._drop()
                raise
            else:
                self.silent = False
            finally:
                connection.end()
                self._used_at = time.monotonic()

    @contextmanager
    def _turn(self, deadline: Deadline, *, command: bool) -> Iterator[None]:
        left_s = deadline.left_s() - _LEAST_S if command else deadline.left_s()
        if command:
            self._commands.append(deadline)
        try:
            if not self._lock.acquire(timeout=max(0.0, min(_COMMAND_LOCK_S if command else _LOCK_S, left_s))):
                raise _Busy
        finally:
            if command:
                self._commands.remove(deadline)
        try:
            yield
        finally:
            self._lock.release()

    def _give_way(self) -> None:
        if self._commands:
            raise _Busy

    def _login(self, deadline: Deadline, *, keep: bool) -> Connection:
        if self._connection is not None:
            return self._connection
        self._credentials = self.settings.credentials()
        if self._refused is not None:
            until, refused, detail = self._refused
            if refused == self._credentials and time.monotonic() < until:
                raise _Rests(detail)
            self._refused = None
        try:
            self._connection = Connection(self.settings, self._credentials, deadline, keep=keep)
        except (sushy.exceptions.AccessError, Forbidden) as error:
            self._remember(error)
            raise
        return self._connection

    def _remember(self, error: Exception) -> None:
        """The login was refused; only other credentials are worth a try for a while."""
        if self._credentials is not None:
            until = time.monotonic() + _AUTH_REST_S
            self._refused = until, self._credentials, self.problem(error)[1]

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self, *, idle_for_s: float = 0.0) -> None:
        """End the session, if nobody used it for so long; not while somebody does."""
        if not self.is_idle(idle_for_s) or not self._lock.acquire(blocking=False):
            return
        try:
            if self.is_idle(idle_for_s):
                self._drop()
        finally:
            self._lock.release()

    def is_idle(self, for_s: float) -> bool:
        """Whether there is a session that nobody used for so long."""
        return self._connection is not None and time.monotonic() - self._used_at >= for_s

    def problem(self, error: BaseException) -> tuple[BmcProblem, str]:
        """What went wrong in one word and one line, without the password, whoever quoted it."""
        if isinstance(error, _Busy):
            return BmcProblem.BUSY, f"BMC of {self.settings.node}: somebody else asks it just now"
        if isinstance(error, _Rests):
            return BmcProblem.AUTH, str(error)
        problem, detail = problem_of(error, self.settings)
        if self._credentials is not None:
            detail = detail.replace(self._credentials.password, "***")
        return problem, detail

    # ---- reading

    def read(self, deadline: Deadline) -> MachineReading:
        """Power, serial number, boot override; never raises."""
        asked_at, node = self._clock(), self.settings.node
        try:
            with self.connected(deadline) as connection:
                system = connection.get(self.profile.system)
                power, serial = power_state(system), self._serial(connection, system)
                if wrong := self._wrong(serial):
                    return MachineReading(
                        node, asked_at, serial=serial, problem=BmcProblem.WRONG_MACHINE, detail=wrong
                    )
                boot = self._boot(connection, system)
        except Exception as error:
            problem, detail = self.problem(error)
            return MachineReading(node, asked_at, problem=problem, detail=detail)
        progress = system.get("BootProgress")
        state = word(progress, "LastState") if isinstance(progress, dict) else ""
        return MachineReading(node, asked_at, power, serial, boot, state)

    def _boot(self, connection: Connection, system: Mapping[str, Any]) -> BootOverride | None:
        """The override; None where its resource cannot be read, which must not hide the power."""
        try:
            fields = self._owner_of_boot(connection, system)[1].get("Boot")
        except sushy.exceptions.HTTPError:
            return None
        return boot_override(fields) if isinstance(fields, dict) else None

    def _owner_of_boot(
        self, connection: Connection, system: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Any], str]:
        """Path, content and ETag of the resource that owns Boot."""
        path = self.profile.settings or settings_path(system)
        if path and path != self.profile.system:
            found, etag = connection.get_with_etag(path)
            if self.profile.settings or "Boot" in found:
                return path, found, etag
        found, etag = connection.get_with_etag(self.profile.system)
        return self.profile.system, found, etag

    def _serial(self, connection: Connection, system: Mapping[str, Any]) -> str:
        path = self.profile.serial_at
        return word(connection.get(path) if path else system, self.profile.serial_key)

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
        connection: Connection | None = None
        try:
            with self.connected(deadline, command=True) as connection:
                system = connection.get(self.profile.system)
                if wrong := self._wrong(self._serial(connection, system)):
                    return Sent(StepOutcome.REFUSED, wrong)
                make = self._request(command, connection, system)
                if isinstance(make, Sent):
                    return make
                if deadline.left_s() < _LEAST_S:
                    return Sent(StepOutcome.REFUSED, "its BMC is so slow that no time was left to send it")
                make()
        except Exception as error:
            detail = self.problem(error)[1]
            if connection is None or not connection.in_doubt:
                return Sent(StepOutcome.REFUSED, detail)
            return Sent(_came_of(command, error), detail)
        return Sent(StepOutcome.ACCEPTED)

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
            if cycle.needs_off and power_state(system) is not PowerState.OFF:
                return Sent(StepOutcome.REFUSED, "its host has to be off for an AC cycle")
            return lambda: connection.post(cycle.path, cycle.body)
        if command in (MachineCommand.BOOT_ONCE, MachineCommand.BOOT_CLEAR):
            path, found, etag = self._owner_of_boot(connection, system)
            boot = found.get("Boot")
            if not isinstance(boot, dict):
                return Sent(StepOutcome.UNSUPPORTED, f"{path} has no Boot")
            offers, target = boot_targets(boot), self.profile.boot_target
            if command is MachineCommand.BOOT_ONCE and offers and target not in offers:
                detail = f"{path} offers no boot by {target}, but by {' '.join(offers)}"
                return Sent(StepOutcome.UNSUPPORTED, plain_line(detail))
            body = {"Boot": boot_fields(self.profile, command, boot)}
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

    def _reset_action(self, connection: Connection, system: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
        """Where a Reset goes, and its values; none where it does not tell: then the standard's are tried."""
        actions = system.get("Actions")
        reset = actions.get("#ComputerSystem.Reset") if isinstance(actions, dict) else None
        target = word(reset, "target", 300) if isinstance(reset, dict) else ""
        if not isinstance(reset, dict) or not target.startswith(f"{self.profile.system}/"):
            raise Nonsense(f"{self.profile.system} has no Reset action of its own")
        values = reset.get("ResetType@Redfish.AllowableValues")
        info = reset.get("@Redfish.ActionInfo")
        if not isinstance(values, list) and isinstance(info, str):
            try:
                values = parameter_values(connection.get(info))
            except sushy.exceptions.HTTPError:
                values = []
        known = values if isinstance(values, list) else []
        return target, frozenset(one for one in known if isinstance(one, str))


def _came_of(command: MachineCommand, error: Exception) -> StepOutcome:
    """What an error means that came after a command had been handed over."""
    if not isinstance(error, sushy.exceptions.HTTPError):
        return StepOutcome.AMBIGUOUS
    status = error.status_code
    if status in _UNSUPPORTED:
        return StepOutcome.UNSUPPORTED
    # OpenBMC sets one field of Boot after another, and names the first that it does not know.
    half_done = status == 404 and command in (MachineCommand.BOOT_ONCE, MachineCommand.BOOT_CLEAR)
    nothing_done = status == 503 or (400 <= status < 500 and status != 408)
    return StepOutcome.REFUSED if nothing_done and not half_done else StepOutcome.AMBIGUOUS
