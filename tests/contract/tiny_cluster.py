"""A real Slurm of two nodes on the loopback, for the contract of the scontrol back end.

munged, slurmctld and two slurmd of the distribution, in a directory of their own; needs root. A reboot stops
the node's slurmd and starts it again with `-b`, as a fresh boot. Files in the directory say which boot hangs,
which prolog fails, and which GPU is lost.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.contract.rig import Timing

NODES = ("n1", "n2")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "squeue", "sbatch", "scancel")

_CONF = """\
ClusterName=tiny
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge/socket,cred_expire={cred_expire}
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool-%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerParameters=bf_interval=2,sched_interval=3,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService={return_to_service}
ResumeTimeout={resume_timeout}
SlurmdTimeout={slurmd_timeout}
MessageTimeout=3
BatchStartTimeout=2
KillWait={kill_wait}
RebootProgram={dir}/reboot
Prolog={dir}/prolog
PrologFlags=Alloc
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
PlugStackConfig=/dev/null
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=localhost Port={port_1} CPUs={cpus} RealMemory=500 Gres=gpu:2
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname=localhost Port={port_2} CPUs={cpus} RealMemory=500 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES State=UP
PartitionName=second Nodes=n1 State=UP
"""

_REBOOT = """\
#!/bin/sh
# slurmd hands its own environment on, and in it the name of the node.
setsid sh -c '
  sleep 0.5
  pid=$(cat {dir}/$TINY_NODE.pid)
  kill "$pid"
  while [ -e {dir}/$TINY_NODE.pid ]; do sleep 0.1; done
  [ -e {dir}/hangs-$TINY_NODE ] || exec {slurmd} -N "$TINY_NODE" -b
' >/dev/null 2>&1 </dev/null &
"""

_PROLOG = """\
#!/bin/sh
fails={dir}/prolog-fails-$SLURMD_NODENAME
[ -e "$fails" ] || exit 0
[ -s "$fails" ] || exit 1
reason=$(cat "$fails")
SLURM_CONF={dir}/slurm.conf {scontrol} update NodeName="$SLURMD_NODENAME" State=DRAIN Reason="$reason"
exit 1
"""

# A job that was requeued, or whose node failed, may start again when its old credential is surely over.
CRED_EXPIRE_S = 7
KILL_WAIT_S = 3
GPUS = 2


def missing() -> str:
    """Why such a cluster cannot run here, or nothing."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [name for name in _PROGRAMS if not shutil.which(name)]
    return f"needs {', '.join(absent)}" if absent else ""


def wait_for(what: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Ask again until it holds or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class TinyCluster:
    """The daemons and their directory."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="slc-tiny-"))
        self.dir.chmod(0o755)
        self.conf = self.dir / "slurm.conf"
        self._ports = _free_ports(3)
        self._controller: subprocess.Popen[bytes] | None = None
        self._others: list[subprocess.Popen[bytes]] = []
        self._gpus = dict.fromkeys(NODES, GPUS)

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to reach this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.conf), "TZ": "UTC", "LC_ALL": "C"}

    def start(self, timing: Timing) -> None:
        """Start everything and wait until both nodes are in service."""
        for name in ("state", "munge"):
            (self.dir / name).mkdir(mode=0o755)
        self._write_conf(timing)
        for node in NODES:
            for index in range(GPUS):
                (self.dir / f"{node}-gpu{index}").touch()
        self._write_gres()
        programs = {"slurmd": shutil.which("slurmd"), "scontrol": shutil.which("scontrol")}
        for name, text in (("reboot", _REBOOT), ("prolog", _PROLOG)):
            script = self.dir / name
            script.write_text(text.format(dir=self.dir, **programs))
            script.chmod(0o755)
        self._start_munge()
        self.start_controller()
        for node in NODES:
            self.start_slurmd(node, boot=False)
        if not wait_for(lambda: self.scontrol("show", "node").count("State=IDLE ") == len(NODES)):
            raise RuntimeError(f"no cluster: {self.scontrol('show', 'node')}")

    def _write_conf(self, timing: Timing) -> None:
        settings = {
            "dir": self.dir,
            "ctld_port": self._ports[0],
            "port_1": self._ports[1],
            "port_2": self._ports[2],
            "cpus": min(2, os.cpu_count() or 1),
            "return_to_service": timing.return_to_service,
            "resume_timeout": timing.resume_timeout_s,
            "slurmd_timeout": timing.slurmd_timeout_s,
            "kill_wait": KILL_WAIT_S,
            "cred_expire": CRED_EXPIRE_S,
        }
        self.conf.write_text(_CONF.format(**settings))

    def configure(self, timing: Timing) -> None:
        """Give slurmctld and the slurmd that run another configuration."""
        self._write_conf(timing)
        run = self.run("scontrol", "reconfigure")
        if run.returncode or f"= {timing.slurmd_timeout_s} sec" not in self.scontrol("show", "config"):
            raise RuntimeError(f"not reconfigured: {run.stderr}")

    # ------------------------------------------------------------ the machines

    def start_slurmd(self, node: str, *, boot: bool) -> None:
        """Start a node's slurmd in place of the one that may run there."""
        self.stop_slurmd(node)
        if boot:
            self.hang_boots(node, False)
        argv = ["slurmd", "-D", "-N", node, *(["-b"] if boot else [])]
        self._others.append(self._spawn(argv, {**self.environment, "TINY_NODE": node}))

    def stop_slurmd(self, node: str) -> None:
        """Kill a node's slurmd and all that it ran, as a crash does, and wait until they are gone."""
        names = (f"TINY_NODE={node}".encode(), f"SLURMD_NODENAME={node}".encode())
        while left := self._left_over(*names):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
        (self.dir / f"{node}.pid").unlink(missing_ok=True)

    def runs_slurmd(self, node: str) -> bool:
        """Whether a node's slurmd is alive."""
        try:
            pid = int((self.dir / f"{node}.pid").read_text())
        except (OSError, ValueError):
            return False
        return pid in self._left_over(f"TINY_NODE={node}".encode())

    def hang_boots(self, node: str, hang: bool) -> None:
        """Let a node's reboots end in silence, or no longer."""
        flag = self.dir / f"hangs-{node}"
        flag.touch() if hang else flag.unlink(missing_ok=True)

    def fail_prolog(self, node: str, drains_as: str | None) -> None:
        """Let a node's prolog fail, after a drain with a text that is not empty; `None` mends it."""
        flag = self.dir / f"prolog-fails-{node}"
        flag.unlink(missing_ok=True) if drains_as is None else flag.write_text(drains_as)

    def set_gpus(self, node: str, count: int) -> None:
        """How many GPUs slurmd finds at its next start."""
        self._gpus[node] = count
        self._write_gres()

    def gpus(self, node: str) -> int:
        """How many GPUs slurmd finds at its next start."""
        return self._gpus[node]

    def _write_gres(self) -> None:
        lines = (
            f"NodeName={node} Name=gpu File={self.dir}/{node}-gpu[0-{count - 1}]\n"
            for node, count in self._gpus.items()
        )
        (self.dir / "gres.conf").write_text("".join(lines))

    # ------------------------------------------------------------ daemons and commands

    def _start_munge(self) -> None:
        key = self.dir / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        at = self.dir / "munge"
        argv = ["munged", "-F", "--num-threads=2", f"--key-file={key}", f"--socket={at}/socket"]
        argv += [f"--pid-file={at}/pid", f"--log-file={at}/log", f"--seed-file={at}/seed"]
        self._others.append(self._spawn(argv, self.environment))
        if not wait_for((at / "socket").exists):
            raise RuntimeError("munged did not start")

    def _spawn(self, argv: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        null = subprocess.DEVNULL
        return subprocess.Popen(
            argv, env=environment, stdin=null, stdout=null, stderr=null, start_new_session=True
        )

    def start_controller(self) -> None:
        """Start slurmctld and wait for its answer."""
        self._controller = self._spawn(["slurmctld", "-D"], self.environment)
        if not wait_for(lambda: "NodeName=" in self.scontrol("show", "node")):
            raise RuntimeError("slurmctld did not start")

    def stop_controller(self) -> None:
        """Stop slurmctld in order, its state saved."""
        assert self._controller is not None
        self._controller.terminate()
        self._controller.wait(30)

    def freeze_controller(self, frozen: bool) -> None:
        """Stop slurmctld in its tracks, or let it go on."""
        assert self._controller is not None
        self._controller.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command against the cluster."""
        return subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def scontrol(self, *argv: str) -> str:
        """What scontrol printed."""
        return self.run("scontrol", *argv).stdout

    def stop(self) -> None:
        """End every process of the cluster, by pid, and remove the directory."""
        if self._controller is not None and self._controller.poll() is None:
            self.freeze_controller(False)
            self.run("scancel", "--user=root")
            wait_for(lambda: not self.run("squeue", "-h").stdout.strip(), 10)
        for process in [self._controller, *self._others]:
            if process is not None and process.poll() is None:
                process.terminate()
        for pid in self._left_over():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not self._left_over(), 5)
        for pid in self._left_over():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in [self._controller, *self._others]:
            if process is not None:
                process.wait(10)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _reap(self) -> None:
        self._others = [process for process in self._others if process.poll() is None]

    def _left_over(self, *any_of: bytes) -> list[int]:
        """Living processes whose environment names this cluster's configuration, and one of these."""
        needle = f"SLURM_CONF={self.conf}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                words = set((entry / "environ").read_bytes().split(b"\0"))
                if needle in words and (not any_of or words & set(any_of)):
                    found.append(int(entry.name))
        return found
