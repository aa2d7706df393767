"""Runs the checks: starts probes, watches the kernel log, keeps the findings. Never blocks on any of them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from slurm_lifecycle.core.fault_catalog import Level
from slurm_lifecycle.node.checks import host, kernel, nvml
from slurm_lifecycle.node.checks.base import GpuContext, Judgement
from slurm_lifecycle.node.checks.gpu import GPU_CHECKS
from slurm_lifecycle.node.child import Child, Outcome, Result, still_lives
from slurm_lifecycle.node.config import AgentConfig
from slurm_lifecycle.node.findings import Finding, Sign, Tracker
from slurm_lifecycle.node.inventory import Inventory, load_inventory, save_inventory
from slurm_lifecycle.node.kernel_log import KernelLog
from slurm_lifecycle.node.state import AgentState

CONFIRM_AFTER_S = 5.0
"""A sign that needs a second sample gets it soon."""

DEEP_EVERY_S = 3600.0
KMSG_FILE_POLL_S = 0.2
# More than the kernel's ring holds, so one turn reads all of it; bounded, since a kernel that logs faster
# than we read would otherwise keep the agent from every other work.
_LOG_READS_A_TURN = 64
_GPU_PROBE, _FS_PROBE = "nvml", "filesystems"
_ROUND = "probe.round"
_PCI_DEVICES = "/sys/bus/pci/devices"


@dataclass
class _Probe:
    """One probe: its work, and where it stands."""

    name: str
    work: Callable[[], Iterable[str]]
    take: Callable[[Result, float], None]
    child: Optional[Child] = None
    rounds: int = 0


class Monitor:
    """The checks of one boot.

    Args:
        config: what to check.
        state: what an earlier run remembered; the stuck children are kept there.
    """

    def __init__(
        self, config: AgentConfig, state: AgentState, confirm_after_s: float = CONFIRM_AFTER_S
    ) -> None:
        self.config, self.state = config, state
        self.tracker = Tracker(_still_configured(state.findings, config), state.occurrences)
        self.inventory: Inventory = load_inventory(config.run_dir, state.boot_id)
        self.snapshot = nvml.Snapshot()
        self.problems: Dict[str, str] = {}
        self._confirm_after_s = confirm_after_s
        self._gpus_on_bus = count_gpus_on_bus()
        self._deep, self._deep_at_s = False, -DEEP_EVERY_S
        self._next_round_s = 0.0
        self._stuck_signs: Dict[str, Sign] = {}
        self._interpreter = kernel.KernelInterpreter(self.tracker, self._component_of, self._limited)
        self._log: Optional[KernelLog] = None
        self._probes = [probe for probe in self._all_probes() if probe is not None]

    def _all_probes(self) -> Iterator[Optional[_Probe]]:
        gpu_ids = {check.check_id for check in GPU_CHECKS}
        if self.config.expected_gpus != 0 and not gpu_ids <= self.config.disabled:
            yield _Probe(_GPU_PROBE, lambda: nvml.read_driver(self._deep), self._take_gpus)
        if (
            self.config.filesystems
            and not {host.SPACE.check_id, host.READ_ONLY.check_id} <= self.config.disabled
        ):
            yield _Probe(
                _FS_PROBE, lambda: host.read_filesystems(self.config.filesystems), self._take_filesystems
            )

    # ---------------------------------------------------------------- the loop's side

    @property
    def complete(self) -> bool:
        """Has each probe ended one round at least, so that `ok` means something?"""
        return all(probe.rounds > 0 for probe in self._probes)

    @property
    def idle(self) -> bool:
        """No probe is running."""
        return all(probe.child is None for probe in self._probes)

    @property
    def settled(self) -> bool:
        """One full round is over, and nothing waits for a second sample."""
        return self.complete and self.idle and not self.tracker.has_unconfirmed

    def waiting_fds(self) -> List[int]:
        """Descriptors whose readiness is a reason to call `advance`."""
        fds = [probe.child.waiting_fd for probe in self._probes if probe.child is not None]
        if self._log is not None and not self._log.polled:
            fds.append(self._log.fd)
        return [fd for fd in fds if fd is not None]

    def timeout_s(self, now_s: float) -> float:
        """How long it may be left alone."""
        waits = [max(0.0, self._next_round_s - now_s)] if self.idle else []
        for probe in self._probes:
            if probe.child is not None:
                waits.append(0.01 if probe.child.waiting_fd is None else 0.25)
        if self._log is not None and self._log.polled:
            waits.append(KMSG_FILE_POLL_S)
        return min(waits)

    def advance(self, now_s: float) -> None:
        """Read new log records, collect probes that ended, start what is due.

        Args:
            now_s: uptime.
        """
        self._read_log(now_s)
        for probe in self._probes:
            result = probe.child.poll() if probe.child is not None else None
            if result is not None:
                self._collect(probe, result, now_s)
        if now_s >= self._next_round_s and self.idle:
            self._start_round(now_s)
        if self.settled and self.tracker.is_open(_ROUND, "CHECK_FAILED", "agent"):
            self._apply(_ROUND, (), now_s)
        self.tracker.tick(now_s)
        self.state.findings = self.tracker.findings
        self.state.occurrences = self.tracker.occurrences

    def end_round(self, now_s: float) -> None:
        """Say so where a one-shot run is over before all checks were: silence would read as all well.

        Args:
            now_s: uptime.
        """
        if not self.settled:
            sign = Sign("CHECK_FAILED", "agent", "checks did not finish in time")
            self.tracker.raise_sign(_ROUND, self._limited("probe", sign), now_s)

    def close(self) -> None:
        """Give up running probes and close the log."""
        for probe in self._probes:
            if probe.child is not None:
                probe.child.give_up()
        if self._log is not None:
            self._log.close()

    # ---------------------------------------------------------------- probes

    def _start_round(self, now_s: float) -> None:
        self._next_round_s = now_s + self.config.interval_s
        self._deep = now_s - self._deep_at_s >= DEEP_EVERY_S
        for probe in self._probes:
            pid, ticks = self.state.stuck.get(probe.name, (0, 0))
            if pid and still_lives(pid, ticks):
                probe.rounds += 1
                self._apply("probe." + probe.name, (self._stuck_sign(probe.name, pid),), now_s)
                continue
            self.state.stuck.pop(probe.name, None)
            try:
                probe.child = Child(probe.work, self.config.probe_timeout_s)
            except OSError as error:
                probe.rounds += 1
                self._apply(
                    "probe." + probe.name, (Sign("CHECK_FAILED", probe.name, f"no child: {error}"),), now_s
                )

    def _stuck_sign(self, name: str, pid: int) -> Sign:
        """A child that is stuck still. After a restart only the name of its probe is known."""
        known = self._stuck_signs.get(name)
        if known is not None:
            return known
        # Of the file systems it may be one that many nodes share.
        code = "PROBE_HUNG" if name == _FS_PROBE else "PROBE_DSTATE"
        return Sign(code, name, "", f"process {pid} in state D")

    def _collect(self, probe: _Probe, result: Result, now_s: float) -> None:
        probe.child = None
        probe.rounds += 1
        signs: Tuple[Sign, ...] = ()
        if result.outcome is Outcome.DONE:
            probe.take(result, now_s)
        elif result.outcome is Outcome.FAILED:
            words = result.error.splitlines()[-1] if result.error else f"ended with {result.code}"
            signs = (Sign("CHECK_FAILED", probe.name, f"could not run: {words}", words),)
        else:
            signs = (self._unanswered(probe, result),)
        self._apply("probe." + probe.name, signs, now_s)
        if self.tracker.has_unconfirmed:
            self._next_round_s = min(self._next_round_s, now_s + self._confirm_after_s)

    def _unanswered(self, probe: _Probe, result: Result) -> Sign:
        where, shared = probe.name, False
        if probe.name == _FS_PROBE:
            where = host.parse_filesystems(result.output).in_progress or where
            shared = host.is_shared(where, _mounts())
        sign = Sign("PROBE_HUNG", where, f"no answer in {self.config.probe_timeout_s:g} s")
        if result.outcome is Outcome.STUCK:
            self.state.stuck[probe.name] = (result.pid, result.started_ticks)
            if not shared:
                sign = Sign("PROBE_DSTATE", where, "", f"process {result.pid} in state D")
            self._stuck_signs[probe.name] = sign
        return sign

    def _take_gpus(self, result: Result, now_s: float) -> None:
        self.snapshot = nvml.parse_snapshot(result.output)
        if self._deep and self.snapshot.complete:
            self._deep_at_s = now_s
        merged = self.inventory.merged(self.snapshot)
        if merged is not self.inventory:
            self.inventory = merged
            self.tracker.name_devices(merged.components)
            try:
                save_inventory(self.config.run_dir, self.state.boot_id, merged)
            except OSError as error:
                self.problems["inventory"] = f"cannot write the inventory: {error}"
        context = GpuContext(self.snapshot, self.inventory, self.config.expected_gpus, self._gpus_on_bus)
        for check in GPU_CHECKS:
            self._judged(check.check_id, check.judge(context), now_s)

    def _take_filesystems(self, result: Result, now_s: float) -> None:
        look = host.parse_filesystems(result.output)
        self._judged(host.SPACE.check_id, host.judge_space(look, self.config.min_free_percent), now_s)
        self._judged(host.READ_ONLY.check_id, host.judge_read_only(look), now_s)

    def _judged(self, check_id: str, judgement: Judgement, now_s: float) -> None:
        if judgement is not None and check_id not in self.config.disabled:
            signs = tuple(self._limited(check_id, sign) for sign in judgement.signs)
            self.tracker.apply_sample(check_id, signs, now_s, judgement.unread)

    def _apply(self, check: str, signs: Iterable[Sign], now_s: float) -> None:
        if "probe" not in self.config.disabled:
            self.tracker.apply_sample(check, [self._limited("probe", sign) for sign in signs], now_s)

    def _limited(self, check_id: str, sign: Sign) -> Sign:
        return replace(sign, level_cap=Level.WARN) if check_id in self.config.observed else sign

    def _component_of(self, device: str) -> str:
        return self.inventory.component_of(device)

    # ---------------------------------------------------------------- kernel log

    def _read_log(self, now_s: float) -> None:
        if kernel.CHECK_ID in self.config.disabled:
            return
        try:
            if self._log is None:
                if "kernel-log" in self.problems and now_s < self._next_round_s:
                    return
                self._log = KernelLog(self.config.kmsg, self.state.kmsg_seq)
                self.problems.pop("kernel-log", None)
                self._apply("probe.kernel-log", (), now_s)
            for _ in range(_LOG_READS_A_TURN):
                self._interpreter.feed(self._log.read(), now_s)
                if self._log.at_end:
                    break
            self.state.kmsg_seq = self._log.seq
        except OSError as error:
            self._log_unreadable(error, now_s)
            return
        if self._log.take_lost():
            self._interpreter.lost_records(now_s)

    def _log_unreadable(self, error: OSError, now_s: float) -> None:
        self.problems["kernel-log"] = f"cannot read {self.config.kmsg}: {error.strerror}"
        sign = Sign("CHECK_FAILED", "kernel-log", self.problems["kernel-log"])
        self.tracker.raise_sign("probe.kernel-log", self._limited("probe", sign), now_s)
        if self._log is not None:
            self._log.close()
            self._log = None


def _still_configured(findings: Iterable[Finding], config: AgentConfig) -> Iterator[Finding]:
    """Findings on record as the present configuration has them: a check may be off by now."""
    for finding in findings:
        check = finding.check.split(".")[0]
        if check not in config.disabled:
            cap = Level.WARN if check in config.observed else None
            yield replace(finding, sign=replace(finding.sign, level_cap=cap))


def count_gpus_on_bus(root: str = _PCI_DEVICES) -> int:
    """NVIDIA display and 3D controllers that the kernel lists, whatever the driver says.

    Args:
        root: sysfs directory of PCI devices.
    """
    count = 0
    try:
        devices = os.listdir(root)
    except OSError:
        return 0
    for device in devices:
        try:
            with open(f"{root}/{device}/vendor", encoding="ascii") as file:
                if file.read().strip() != "0x10de":
                    continue
            with open(f"{root}/{device}/class", encoding="ascii") as file:
                count += file.read().startswith("0x03")
        except OSError:
            continue
    return count


def _mounts() -> str:
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
