"""PID 1 of an emulated node: builds the node's file tree, boots it, reaps, restarts the agent.

Started by the machine supervisor in new PID, mount, UTS and (where the kernel has them) time namespaces.
Everything on the node is a descendant, so the end of this process is the end of the node, as on a real one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from slurm_lifecycle.sandbox import mounts
from slurm_lifecycle.sandbox.settings import Layout, NodeLayout, Settings

# The contract for the one-shot at boot is 60 s; a node that hangs in it must come up all the same.
_BOOT_CHECK_LIMIT_S = 65.0
_AGENT_RESTART_S = 2.0
# How long services have to end when the node shuts down.
_HALT_S = 3.0
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Plan:
    """What this boot needs to know."""

    layout: Layout
    node: NodeLayout
    settings: Settings

    def environment(self) -> dict[str, str]:
        """Environment of the node's own services, as a service manager would give it."""
        return {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(self.layout.slurm_conf),
            "LD_LIBRARY_PATH": str(self.layout.lib),
            "SLC_FAKE_NVML_STATE": "/run/slc-machine/nvml.state",
            "SLC_SANDBOX_ROOT": str(self.layout.root),
        }


def build_tree(plan: Plan) -> None:
    """Gives the node its own /proc, /dev, /run, /etc; nothing is mounted outside this namespace."""
    layout, node = plan.layout, plan.node
    socket.sethostname(node.name)
    mounts.proc(Path("/proc"))
    mounts.bind(node.boot_id, Path("/proc/sys/kernel/random/boot_id"))
    staging = node.root / "staging"
    for name in ("dev", "run"):
        (staging / name).mkdir(parents=True, exist_ok=True)
        mounts.tmpfs(staging / name)
    _fill_dev(plan, staging / "dev")
    _fill_run(plan, staging / "run")
    mounts.move(staging / "dev", Path("/dev"))
    mounts.move(staging / "run", Path("/run"))
    for link, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (Path("/dev") / link).symlink_to(f"/proc/self/{target}")
    mounts.overlay(Path("/etc"), Path("/run/.etc/upper"), Path("/run/.etc/work"), Path("/etc"))
    Path("/etc/slurm-lifecycle").mkdir(exist_ok=True)
    mounts.bind(node.config, Path("/etc/slurm-lifecycle"))
    Path("/etc/slurm").mkdir(exist_ok=True)
    mounts.bind(layout.etc, Path("/etc/slurm"))
    Path("/etc/hosts").write_bytes(layout.hosts.read_bytes())
    Path("/etc/hostname").write_text(f"{node.name}\n", encoding="ascii")
    _show_serial(plan)
    bin_dir = Path("/usr/local/bin")
    mounts.overlay(bin_dir, Path("/run/.bin/upper"), Path("/run/.bin/work"), bin_dir)
    for tool in layout.bin.iterdir():
        (bin_dir / tool.name).unlink(missing_ok=True)
        (bin_dir / tool.name).symlink_to(tool)


def _show_serial(plan: Plan) -> None:
    """Firmware tables with the machine's serial number; the machine below may have none, or its own."""
    own = Path("/run/.sys/upper/dmi/id")
    own.mkdir(parents=True)
    Path("/run/.sys/work").mkdir()
    (own / "product_serial").write_bytes(plan.node.product_serial.read_bytes())
    # A kernel that lays nothing over sysfs leaves the node without, as a virtual machine is.
    with contextlib.suppress(OSError):
        mounts.overlay(Path("/sys/class"), own.parent.parent, Path("/run/.sys/work"), Path("/sys/class"))


def _fill_dev(plan: Plan, dev: Path) -> None:
    for name in _DEVICES:
        mounts.bind_file(Path("/dev") / name, dev / name)
    for loop in Path("/dev").glob("loop*"):
        mounts.bind_file(loop, dev / loop.name)
    (dev / "pts").mkdir()
    mounts.bind(Path("/dev/pts"), dev / "pts")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "shm").mkdir()
    mounts.tmpfs(dev / "shm", mode="1777")
    mounts.bind_file(plan.node.kmsg, dev / "kmsg")
    # slurmd demands device nodes and sets CUDA_VISIBLE_DEVICES only for them; opening one does no harm.
    for name in (*(f"nvidia{i}" for i in range(plan.settings.gpus)), "nvidiactl"):
        mounts.bind_file(Path("/dev/null"), dev / name)


def _fill_run(plan: Plan, run: Path) -> None:
    root = plan.layout.root
    if root.is_relative_to("/run"):
        # The sandbox itself lies below /run: keep it visible under the same path.
        inside = run / root.relative_to("/run")
        inside.mkdir(parents=True)
        mounts.bind(root, inside)
    (run / "slc-machine").mkdir()
    mounts.bind(plan.node.link, run / "slc-machine")
    (run / "lock").mkdir(mode=0o1777)
    (run / "munge").mkdir()
    (run / "munge" / "munge.socket.2").symlink_to(plan.layout.munge_socket)
    for name in ("upper", "work"):
        (run / ".etc" / name).mkdir(parents=True)
        (run / ".bin" / name).mkdir(parents=True)


class Services:
    """The node's services: one-shot boot check, agent (restarted), slurmd (not, as in Debian's unit)."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._agent: int | None = None
        self._agent_due = float("inf")

    def _spawn(self, argv: list[str], log: str) -> int:
        path = str(self._plan.node.logs / log)
        # Not subprocess: its clean-up of dropped children would steal exit codes from the reaper below.
        return os.posix_spawnp(
            argv[0],
            argv,
            self._plan.environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )

    def boot_check(self) -> None:
        """Runs the one-shot check before slurmd, bounded; its failure is logged and stops nothing."""
        argv = [sys.executable, "-m", "slurm_lifecycle.node", "--boot"]
        pid = self._spawn(argv, "agent.log")
        deadline = time.monotonic() + _BOOT_CHECK_LIMIT_S
        while time.monotonic() < deadline:
            done, status = _wait_any()
            if done == pid:
                say("boot_check", rc=os.waitstatus_to_exitcode(status))
                return
            if done == 0:
                time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        say("boot_check", rc=124)

    def start_agent(self) -> None:
        """Starts the agent's loop."""
        self._agent = self._spawn([sys.executable, "-m", "slurm_lifecycle.node"], "agent.log")
        self._agent_due = float("inf")
        say("agent", pid=self._agent)

    def start_slurmd(self) -> None:
        """Starts slurmd, telling slurmctld of a new boot."""
        name = self._plan.node.name
        pid = self._spawn(
            ["slurmd", "-D", "-b", "-N", name, "-f", str(self._plan.layout.slurm_conf)], "slurmd.out"
        )
        say("slurmd", pid=pid)

    def run(self) -> None:
        """Boots, then reaps until the power button is pressed."""
        if self._plan.settings.agent:
            self.boot_check()
            self.start_agent()
        self.start_slurmd()
        say("booted")
        while True:
            done, status = _wait_any()
            if done == self._agent and done:
                say("agent_exited", rc=os.waitstatus_to_exitcode(status))
                self._agent, self._agent_due = None, time.monotonic() + _AGENT_RESTART_S
            elif done == 0:
                heard = signal.sigtimedwait([signal.SIGCHLD, signal.SIGPWR], 1.0)
                if heard is not None and heard.si_signo == signal.SIGPWR:
                    halt()
                    return
            if time.monotonic() >= self._agent_due:
                self.start_agent()


def halt() -> None:
    """Ends every process of the node, by TERM and then by KILL."""
    for number, limit_s in ((signal.SIGTERM, _HALT_S), (signal.SIGKILL, _HALT_S)):
        with contextlib.suppress(ProcessLookupError):
            # All but this process: it is the first of its PID namespace.
            os.kill(-1, number)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.02)
            except ChildProcessError:
                say("halted")
                return
    say("halted")


def _wait_any() -> tuple[int, int]:
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0


def say(event: str, **details: object) -> None:
    """One line to the supervisor."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps({"event": event, **details}) + "\n").encode())


def main(argv: list[str]) -> int:
    """Entry point: `node_init ROOT NODE`."""
    # Read before /proc is mounted anew: the machine's /proc still shows the pid outside.
    outer_pid = int(Path("/proc/self").readlink().name)
    say("init", pid=outer_pid)
    layout = Layout(Path(argv[0]))
    plan = Plan(layout, layout.node(argv[1]), Settings.from_json(layout.settings.read_text(encoding="utf-8")))
    os.environ["PATH"] = PATH
    # Blocked so that sigtimedwait sees them: a plain wait could not look after the agent's restart as well.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGPWR])
    try:
        build_tree(plan)
    except OSError as problem:
        say("failed", text=str(problem))
        return 1
    Services(plan).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
