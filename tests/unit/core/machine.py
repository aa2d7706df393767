"""A machine with a BMC in values: what it does in truth, and what its BMC says of it."""

from dataclasses import dataclass, field

from slurm_lifecycle.core.machine import (
    BmcProblem,
    BootOverride,
    MachineCommand,
    MachineReading,
    PowerState,
    StepOutcome,
)

NO_OVERRIDE = BootOverride("Disabled", "None", "UEFI")
ONCE = BootOverride("Once", "Pxe", "UEFI")


@dataclass
class Machine:
    """Obeys at once unless told otherwise.

    Attributes:
        up: it is on, and its operating system runs. on: its power is on.
        deaf_os: does not shut down when asked to.
        refuse: how often a command is refused before it is taken.
        lost: commands that are answered and not done. unheard: commands that are done and not answered.
        says: what the BMC says of the power, whatever is true.
        problem: the BMC cannot be read. serial_problem: nor sent to.
        override_kept: it stays after the boot. override_ignored: it boots from its disk all the same.
        override_reads: what is read back, whatever is true.
        dark_s: how long the BMC says nothing after its mains were cut.
        never_boots: it goes on, and no operating system comes up.
    """

    on: bool = True
    up: bool = True
    boot_s: float = 20.0
    shutdown_s: float = 0.0
    deaf_os: bool = False
    never_boots: bool = False
    restores_power: bool = False
    unsupported: frozenset[MachineCommand] = frozenset()
    refuse: dict[MachineCommand, int] = field(default_factory=dict)
    lost: set[MachineCommand] = field(default_factory=set)
    unheard: set[MachineCommand] = field(default_factory=set)
    says: PowerState | None = None
    problem: BmcProblem = BmcProblem.NONE
    override: BootOverride = NO_OVERRIDE
    override_kept: bool = False
    override_ignored: bool = False
    override_reads: BootOverride | None = None
    dark_s: float = 0.0
    booted_at: float | None = None
    booted_from: str = ""
    offs: int = 0
    boots: int = 0
    accepted: list[MachineCommand] = field(default_factory=list)
    _boots_at: float | None = None
    _off_at: float | None = None
    _dark_until: float = 0.0

    def reading(self, name: str, now: float) -> MachineReading:
        if self.problem is not BmcProblem.NONE or now < self._dark_until:
            return MachineReading(name, now, problem=self.problem or BmcProblem.TIMEOUT, detail="no answer")
        true = PowerState.ON if self.on else PowerState.OFF
        boot = self.override_reads or self.override
        return MachineReading(name, now, self.says or true, "S1", boot)

    def send(self, command: MachineCommand, now: float) -> tuple[StepOutcome, str]:
        if command in self.unsupported:
            return StepOutcome.UNSUPPORTED, f"no {command.value} here"
        if self.problem is not BmcProblem.NONE or self.refuse.get(command, 0) > 0:
            self.refuse[command] = self.refuse.get(command, 0) - 1
            return StepOutcome.REFUSED, "409"
        self.accepted.append(command)
        if command not in self.lost:
            self._do(command, now)
        if command in self.unheard:
            return StepOutcome.AMBIGUOUS, "no answer in time"
        return StepOutcome.ACCEPTED, ""

    def _do(self, command: MachineCommand, now: float) -> None:
        if command is MachineCommand.GRACEFUL_OFF:
            if not self.deaf_os:
                self._off_at = now + self.shutdown_s
        elif command in (MachineCommand.FORCE_OFF, MachineCommand.AC_CYCLE):
            self.goes_off()
            if command is MachineCommand.AC_CYCLE:
                self._dark_until = now + self.dark_s
                if self.restores_power:
                    self.goes_on(now + self.dark_s)
        elif command is MachineCommand.ON:
            if not self.on:
                self.goes_on(now)
        elif command is MachineCommand.BOOT_ONCE:
            self.override = ONCE
        else:
            self.override = NO_OVERRIDE

    def goes_off(self) -> None:
        self.offs += self.on
        self.on = self.up = False
        self._boots_at = self._off_at = None

    def goes_on(self, now: float) -> None:
        self.on = True
        self._boots_at = now + self.boot_s
        network = self.override.stands and not self.override_ignored
        self.booted_from = "network" if network else "disk"
        if not self.override_kept and self.override.enabled == "Once":
            self.override = NO_OVERRIDE

    def pass_time(self, now: float) -> None:
        if self._off_at is not None and now >= self._off_at:
            self.goes_off()
        if self._boots_at is not None and now >= self._boots_at and not self.never_boots:
            self.booted_at, self.up, self._boots_at = self._boots_at, True, None
            self.boots += 1
