"""A real Slurm of two nodes on the loopback, for the contract of the scontrol back end.

munged, slurmctld and two slurmd of the distribution, in a directory of their own; needs root. A reboot stops
the node's slurmd and starts it again with `-b`, as a fresh boot.
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

NODES = ("n1", "n2")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "squeue", "sbatch", "scancel")

_CONF = """\
ClusterName=tiny
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge/socket
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool-%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=0
ResumeTimeout=120
SlurmdTimeout=60
KillWait=1
RebootProgram={dir}/reboot
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
PlugStackConfig=/dev/null
SlurmdParameters=config_overrides
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=localhost Port={port_1} CPUs=4 RealMemory=1000 Gres=gpu:2
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname=localhost Port={port_2} CPUs=4 RealMemory=1000 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES State=UP
PartitionName=second Nodes=n1 State=UP
"""

_REBOOT = """\
#!/bin/sh
# slurmd hands its own environment on, and in it the name of the node.
setsid sh -c '
  sleep 0.5
  kill "$(cat {dir}/$TINY_NODE.pid)"
  while [ -e {dir}/$TINY_NODE.pid ]; do sleep 0.1; done
  exec {slurmd} -N "$TINY_NODE" -b
' >/dev/null 2>&1 </dev/null &
"""


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
        self._controller: subprocess.Popen[bytes] | None = None
        self._others: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to reach this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.conf), "TZ": "UTC", "LC_ALL": "C"}

    def start(self) -> None:
        """Start everything and wait until both nodes are in service."""
        ports = _free_ports(3)
        for name in ("state", "munge"):
            (self.dir / name).mkdir(mode=0o755)
        settings = {"dir": self.dir, "ctld_port": ports[0], "port_1": ports[1], "port_2": ports[2]}
        self.conf.write_text(_CONF.format(**settings))
        gpus = [self.dir / f"gpu{index}" for index in range(2)]
        for gpu in gpus:
            gpu.touch()
        (self.dir / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={self.dir}/gpu[0-1]\n")
        reboot = self.dir / "reboot"
        reboot.write_text(_REBOOT.format(dir=self.dir, slurmd=shutil.which("slurmd")))
        reboot.chmod(0o755)
        self._start_munge()
        self.start_controller()
        for node in NODES:
            environment = {**self.environment, "TINY_NODE": node}
            self._others.append(self._spawn(["slurmd", "-D", "-N", node], environment))
        if not wait_for(lambda: self.scontrol("show", "node").count("State=IDLE ") == len(NODES)):
            raise RuntimeError(f"no cluster: {self.scontrol('show', 'node')}")

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

    def _left_over(self) -> list[int]:
        """Living processes whose environment names this cluster's configuration."""
        needle = f"SLURM_CONF={self.conf}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found
