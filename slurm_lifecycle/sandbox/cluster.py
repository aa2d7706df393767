"""A real local Slurm with emulated GPU nodes: munged, slurmctld, and one machine supervisor a node.

Everything that it makes lies below one root folder and in namespaces of its own processes: `down` leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox import bmcs, controller, files, preflight, procs, teardown
from slurm_lifecycle.sandbox.node_handle import Node
from slurm_lifecycle.sandbox.settings import (
    DEFAULT_NAME,
    Layout,
    SandboxError,
    Settings,
    default_root,
    pick_ports,
)
from slurm_lifecycle.sandbox.state import State

Progress = Callable[[str], None]
_COMMAND_TIMEOUT_S = 30.0
# Measured on 22.05: about 1 s after its start slurmctld asks every node once. Where the answer comes in just
# after a reboot was issued, the node returns as "unexpectedly rebooted" and stays in REBOOT_ISSUED:
# 16 of 32 reboots at once, none of 168 a second or more later.
_SETTLE_S = 2.5


def _silent(_: str) -> None:
    return None


class Sandbox:
    """One sandbox. `create` makes the object; `up` makes the cluster.

    Example:
        >>> sandbox = Sandbox.create(nodes=2)
        >>> sandbox.up()
        >>> sandbox.inject("n1", "xid", code=79, gpu=3)
        >>> sandbox.down()
    """

    def __init__(self, settings: Settings, root: Path) -> None:
        self.settings = settings
        self.layout = Layout(root)

    @classmethod
    def create(cls, root: Path | None = None, **settings: Any) -> Sandbox:
        """A sandbox with the given settings (fields of `Settings`); nothing is started or written yet."""
        chosen = Settings(**settings)
        return cls(chosen, root or default_root(chosen.name))

    @classmethod
    def open(cls, name: str = DEFAULT_NAME, root: Path | None = None) -> Sandbox:
        """A sandbox that `up` made, with the settings that it was made with.

        Raises:
            SandboxError: when there is none.
        """
        layout = Layout(root or default_root(name))
        try:
            text = layout.settings.read_text(encoding="utf-8")
        except OSError:
            raise SandboxError(
                f"no sandbox {name!r} at {layout.root}: run `slurm-lifecycle sandbox up --name {name}`"
            ) from None
        return cls(Settings.from_json(text), layout.root)

    # ---- use

    @property
    def root(self) -> Path:
        """The root folder."""
        return self.layout.root

    @property
    def slurmctld_log(self) -> Path:
        """slurmctld's log."""
        return self.layout.ctld / "slurmctld.log"

    def env(self) -> dict[str, str]:
        """What Slurm's client commands need in their environment."""
        return {"SLURM_CONF": str(self.layout.slurm_conf)}

    def client(
        self, argv: Sequence[str], *, timeout_s: float = _COMMAND_TIMEOUT_S, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs sbatch, scontrol or such on this machine against this cluster; never raises for its exit."""
        return subprocess.run(
            list(argv),
            env={**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{preflight.SYSTEM_PATH}", **self.env()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            **options,
        )

    def controller_command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs argv on the controller's host: there srun, too, listens on loopback only.

        Raises:
            SandboxError: when slurmctld does not run.
        """
        ref = State.load(self.layout).processes.get("slurmctld")
        if ref is None or not procs.is_alive(ref):
            raise SandboxError("slurmctld does not run: `slurm-lifecycle sandbox up` starts afresh")
        return ["nsenter", "--target", str(ref.pid), "--mount", "--uts", "--wd=/", "--", *argv]

    def node(self, name: str) -> Node:
        """One node.

        Raises:
            SandboxError: when there is no node of that name.
        """
        if name not in self.settings.node_names():
            raise SandboxError(f"no node {name!r}: this sandbox has {self.settings.hostlist()}")
        return Node(self.layout, self.settings, name)

    def nodes(self) -> list[Node]:
        """All nodes, in order."""
        return [self.node(name) for name in self.settings.node_names()]

    def bmc(self, node: str) -> bmcs.Bmc:
        """The BMC of one node.

        Raises:
            SandboxError: there is no such node.
        """
        return bmcs.Bmc(self.layout, self.node(node).name)

    def inject(self, node: str, fault: str, **details: Any) -> None:
        """Injects a fault into a node (see `Node.inject`), or into its BMC: `bmc-` and one of its kinds.

        Raises:
            SandboxError: when there is no such node, fault or detail.
        """
        if fault.startswith("bmc-"):
            wrong = [key for key, value in details.items() if value is not None and key != "details"]
            if wrong:
                raise SandboxError(f"{fault}: not --{wrong[0]}; give details as --with KEY=VALUE")
            bmcs.inject_by_words(self.bmc(node), fault.removeprefix("bmc-"), details.get("details") or {})
        elif details.pop("details", None):
            raise SandboxError(f"{fault}: --with is for the faults of a BMC (bmc-...)")
        else:
            self.node(node).inject(fault, **details)

    def node_states(self) -> dict[str, str]:
        """Slurm's own state of each node; empty where slurmctld does not answer."""
        try:
            done = self.client(["scontrol", "-o", "show", "node"], timeout_s=10)
        except subprocess.TimeoutExpired:
            return {}
        states = {}
        for line in done.stdout.splitlines() if done.returncode == 0 else []:
            # State stands before CfgTRES; what comes after it may hold anybody's text.
            fields = dict(f.split("=", 1) for f in line.partition(" CfgTRES=")[0].split() if "=" in f)
            if "NodeName" in fields:
                states[fields["NodeName"]] = fields.get("State", "?")
        return states

    def status(self) -> dict[str, Any]:
        """What runs, and the state of each node as its machine and as Slurm see it."""
        state = State.load(self.layout)
        alive = {name: procs.is_alive(ref) for name, ref in state.processes.items()}
        states = self.node_states() if alive.get("slurmctld") else {}
        urls = bmcs.addresses(self.layout) if self.settings.bmc else {}
        nodes = []
        for node in self.nodes():
            machine: dict[str, Any] = {"node": node.name, "power": "unknown"}
            if alive.get(f"machine:{node.name}"):
                with contextlib.suppress(SandboxError):
                    machine = node.describe()
            if node.name in urls:
                machine["bmc"] = urls[node.name]
            nodes.append({**machine, "slurm_state": states.get(node.name, "unknown")})
        return {
            "name": self.settings.name,
            "root": str(self.root),
            "env": self.env(),
            "ports": state.ports,
            "processes": {n: {"pid": state.processes[n].pid, "alive": a} for n, a in alive.items()},
            "nodes": nodes,
        }

    def is_up(self) -> bool:
        """Whether every process of this sandbox runs."""
        expected = {"munged", "slurmctld", *(f"machine:{n}" for n in self.settings.node_names())}
        if self.settings.bmc:
            expected.add("bmc")
        found = State.load(self.layout).processes
        return expected == {name for name, ref in found.items() if procs.is_alive(ref)}

    # ---- up

    def up(self, progress: Progress = _silent, *, timeout_s: float = 90.0) -> None:
        """Starts the cluster and waits until every node is in service; does nothing when it already runs.

        What a dead or half-dead sandbox of the same root left behind is removed first.

        Raises:
            SandboxError: when something is missing or does not start; what was started is stopped again.
        """
        preflight.check()
        if self.layout.root.exists():
            if State.load(self.layout).ready and self.is_up():
                progress(f"already up: {self.root}")
                return
            progress(f"removing what an earlier sandbox left in {self.root}")
            self.down()
        self._make_root()
        with self._lock():
            try:
                self._start(progress, time.monotonic() + timeout_s)
            except SandboxError:
                # The files stay, because the message points at a log; the next `up` or `down` removes them.
                teardown.stop_all(self.layout)
                raise
            except BaseException:
                teardown.remove(self.layout)
                raise

    def _make_root(self) -> None:
        try:
            self.root.mkdir(mode=0o755)
        except FileExistsError:
            raise SandboxError(f"another command works on {self.root}: wait for it") from None
        except OSError as problem:
            raise SandboxError(f"cannot make {self.root} ({problem.strerror}): give another --root") from None
        self.layout.marker.touch()
        self.layout.settings.write_text(self.settings.to_json(), encoding="utf-8")
        for folder in (
            self.layout.etc,
            self.layout.munge,
            self.layout.ctld / "state",
            self.layout.lib,
            self.layout.bin,
        ):
            folder.mkdir(parents=True)
        self.root.chmod(0o755)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with self.layout.marker.open("r") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SandboxError(f"another command works on {self.root}: wait for it") from None
            yield

    def _start(self, progress: Progress, deadline: float) -> None:
        progress("writing the configuration, building the fake NVML library")
        each = 2 if self.settings.bmc else 1
        ports = pick_ports(1 + each * self.settings.nodes, str(self.root))
        state = State(ports)
        state.save(self.layout)
        files.write(self.settings, self.layout, ports)
        files.build_nvml(self.layout, progress)
        progress("starting munged and slurmctld")
        self._start_munged(state, deadline)
        self.start_slurmctld()
        settled = time.monotonic() + _SETTLE_S
        state = State.load(self.layout)
        if self.settings.bmc:
            self._start_bmcs(state, deadline)
        progress(f"booting {self.settings.nodes} nodes with {self.settings.gpus} GPUs each")
        for name in self.settings.node_names():
            self._start_machine(name, state)
        self._wait_in_service(deadline)
        time.sleep(max(0.0, settled - time.monotonic()))
        state = State.load(self.layout)
        state.ready = True
        state.save(self.layout)
        progress(f"{self.settings.nodes} nodes in service")

    def _spawn(
        self, argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> procs.ProcessRef:
        with log.open("ab") as out:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                env={
                    "PATH": preflight.SYSTEM_PATH,
                    "LANG": "C.UTF-8",
                    procs.ROOT_VARIABLE: str(self.root),
                    **(environment or {}),
                },
                start_new_session=True,
            )
        ref = procs.ref_of(child.pid)
        if ref is None:
            raise SandboxError(f"{argv[0]} ended at once: see {log}")
        return ref

    def _start_munged(self, state: State, deadline: float) -> None:
        folder = self.layout.munge
        key = folder / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        argv = ["munged", "--foreground", f"--key-file={key}", f"--socket={self.layout.munge_socket}"]
        argv += [f"--pid-file={folder}/pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/seed"]
        state.processes["munged"] = self._spawn(argv, folder / "munged.out")
        state.save(self.layout)
        while not self.layout.munge_socket.exists():
            if time.monotonic() > deadline or not procs.is_alive(state.processes["munged"]):
                raise SandboxError(f"munged did not start: {_last_line(folder / 'munged.out')}")
            time.sleep(0.02)

    def start_slurmctld(self) -> None:
        """Starts slurmctld (again, after `stop_slurmctld`)."""
        argv = [*controller.UNSHARE, sys.executable, "-m", "slurm_lifecycle.sandbox.controller"]
        argv += [str(self.layout.hosts), "slurmctld", "-D", "-f", str(self.layout.slurm_conf)]
        state = State.load(self.layout)
        state.processes["slurmctld"] = self._spawn(argv, self.layout.ctld / "slurmctld.out", self.env())
        state.save(self.layout)

    def stop_slurmctld(self, *, kill: bool = False) -> None:
        """Stops slurmctld, by TERM or by KILL."""
        ref = State.load(self.layout).processes.get("slurmctld")
        if ref is not None:
            procs.stop([ref], grace_s=0 if kill else 15)

    def _start_bmcs(self, state: State, deadline: float) -> None:
        log = self.layout.bmc / "bmc.out"
        argv = [sys.executable, "-m", "slurm_lifecycle.sandbox.bmc", "serve", str(self.layout.bmc_specs)]
        state.processes["bmc"] = self._spawn(argv, log)
        state.save(self.layout)
        while not self.layout.bmc_control.exists():
            if time.monotonic() > deadline or not procs.is_alive(state.processes["bmc"]):
                raise SandboxError(f"the BMCs did not start: {_last_line(log)}")
            time.sleep(0.02)

    def _start_machine(self, name: str, state: State) -> None:
        argv = [sys.executable, "-m", "slurm_lifecycle.sandbox.machine", str(self.root), name]
        log = self.layout.node(name).logs / "machine.log"
        state.processes[f"machine:{name}"] = self._spawn(argv, log)
        state.save(self.layout)

    def _wait_in_service(self, deadline: float) -> None:
        waiting = set(self.settings.node_names())
        while waiting:
            if not procs.is_alive(State.load(self.layout).processes["slurmctld"]):
                # Before it has read its configuration it does not know its log.
                said = (
                    self.slurmctld_log if self.slurmctld_log.exists() else self.layout.ctld / "slurmctld.out"
                )
                raise SandboxError(f"slurmctld did not start: {_last_line(said)}")
            states = self.node_states()
            waiting = {name for name in waiting if states.get(name) not in ("IDLE", "MIXED", "ALLOCATED")}
            late = time.monotonic() > deadline
            for node in map(self.node, sorted(waiting)):
                if late or (node.files.control.exists() and node.power() == "crashed"):
                    log = node.files.logs / ("slurmd.log" if late else "machine.log")
                    raise SandboxError(f"{node.name} did not come into service: {_last_line(log)}")
            if waiting:
                time.sleep(0.2)

    # ---- down

    def down(self, progress: Progress = _silent) -> None:
        """Stops every process of this sandbox and removes its files.

        Idempotent, and works after `kill -9` of anything.

        Raises:
            SandboxError: when the folder is not a sandbox, or a process cannot be killed.
        """
        if not self.root.exists() and not self.root.is_symlink():
            return
        if not teardown.is_ours(self.layout):
            raise SandboxError(f"{self.root} is not a sandbox of yours: choose another --name or --root")
        with self._lock():
            progress("stopping nodes and daemons")
            teardown.remove(self.layout)
        progress(f"removed {self.root}")


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return f"{lines[-1]} (see {log})" if lines else f"see {log}"
