"""What a sandbox is made of: its settings, where its files lie, and which TCP ports it uses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slurm_lifecycle.errors import LifecycleError

# munged refuses a socket path of more than 107 bytes (sockaddr_un); the longest one of ours adds about 30.
MAX_ROOT_BYTES = 70
# Below the kernel's default ephemeral range (32768-60999): no outgoing connection takes a port of ours.
PORT_RANGE = range(20000, 32000)
MARKER = ".slurm-lifecycle-sandbox"
DEFAULT_NAME = "default"
_RANGES = (
    ("agent_interval_s", 1, 3600),
    ("slurmd_timeout_s", 1, 65533),
    ("resume_timeout_s", 1, 65533),
    ("health_interval_s", 0, 65533),
    ("boot_s", 0, 3600),
    ("install_s", 0, 3600),
    ("return_to_service", 0, 2),
)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")


class SandboxError(LifecycleError):
    """Something that the sandbox cannot do; the text says in one line what to do next."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one sandbox, kept in its root so that every later command uses the same ones.

    Attributes:
        name: which sandbox; two names run side by side.
        nodes: number of emulated nodes, `n1` to `nN`.
        gpus: GPUs a node.
        agent: run the node agent (the boot check and the loop) on each node.
        agent_mode: `drain` or `observe`; nothing is at stake here, so agents may drain by default.
        agent_interval_s: full check every so often; shorter than on a site, so that a fault shows soon.
        return_to_service: slurm.conf ReturnToService.
        slurmd_timeout_s: slurm.conf SlurmdTimeout.
        resume_timeout_s: slurm.conf ResumeTimeout.
        health_interval_s: slurm.conf HealthCheckInterval; 0 wires no HealthCheckProgram.
        boot_s: how long the firmware of an emulated node takes before the operating system starts.
        install_s: how long the emulated installation of an image takes.
        bmc: every node has a BMC, an emulated one.
        bmc_profile: which kind (`sandbox.bmc.profiles`); several, with commas between, take turns.
        hooks_dir: where `prolog/`, `epilog/` and `healthcheck/` lie; empty: beside the package.
        slurm_conf_extra: lines added at the end of slurm.conf.
    """

    name: str = DEFAULT_NAME
    nodes: int = 8
    gpus: int = 8
    agent: bool = True
    agent_mode: str = "drain"
    agent_interval_s: int = 10
    return_to_service: int = 0
    slurmd_timeout_s: int = 10
    resume_timeout_s: int = 120
    health_interval_s: int = 30
    boot_s: float = 3.0
    install_s: float = 3.0
    bmc: bool = False
    bmc_profile: str = "generic"
    hooks_dir: str = ""
    slurm_conf_extra: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SandboxError(f"bad sandbox name {self.name!r}: use at most 20 of [a-z0-9-]")
        if not 1 <= self.nodes <= 256:
            raise SandboxError(f"{self.nodes} nodes: choose 1 to 256")
        if not 1 <= self.gpus <= 16:
            raise SandboxError(f"{self.gpus} GPUs a node: choose 1 to 16")
        for name, low, high in _RANGES:
            # Slurm takes times of 16 bits; the comparison also refuses what is no number.
            if not low <= getattr(self, name) <= high:
                raise SandboxError(f"{name} {getattr(self, name)}: choose {low} to {high}")
        if self.agent_mode not in ("drain", "observe"):
            raise SandboxError(f"agent mode {self.agent_mode!r}: choose drain or observe")

    def node_names(self) -> list[str]:
        """Names of the nodes, in order."""
        return [f"n{i}" for i in range(1, self.nodes + 1)]

    def hostlist(self) -> str:
        """The nodes as Slurm writes them."""
        return f"n[1-{self.nodes}]" if self.nodes > 1 else "n1"

    def to_json(self) -> str:
        """Settings as kept in the root."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Settings as read back; a key of another release is left out.

        Raises:
            SandboxError: when the text is damaged.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            return cls(**{k: v for k, v in raw.items() if k in cls.__dataclass_fields__})
        except (ValueError, TypeError, AttributeError) as problem:
            raise SandboxError(
                f"settings of the sandbox are damaged ({problem}): `slurm-lifecycle sandbox down` removes it"
            ) from problem


def default_root(name: str) -> Path:
    """Where the sandbox of that name lives.

    Always /tmp, never XDG_RUNTIME_DIR: that one differs between `sudo` and a root shell, so a later command
    would look elsewhere, and other users cannot enter it to submit jobs.
    """
    if not _NAME.fullmatch(name):
        raise SandboxError(f"bad sandbox name {name!r}: use at most 20 of [a-z0-9-]")
    return Path("/tmp") / f"slc-sandbox-{name}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files of one sandbox lie."""

    root: Path

    def __post_init__(self) -> None:
        if not self.root.is_absolute():
            raise SandboxError(f"sandbox root {self.root}: give an absolute path")
        if len(os.fsencode(self.root)) > MAX_ROOT_BYTES:
            raise SandboxError(
                f"sandbox root {self.root} is longer than {MAX_ROOT_BYTES} bytes, too long for a socket: "
                "choose a shorter one with --root"
            )
        if re.search(r"[^A-Za-z0-9._/-]", str(self.root)):
            raise SandboxError(f"sandbox root {self.root}: use only [A-Za-z0-9._/-], slurm.conf cannot quote")

    @property
    def marker(self) -> Path:
        """Proves that the folder is a sandbox: nothing without it is ever removed."""
        return self.root / MARKER

    @property
    def settings(self) -> Path:
        """The settings, as JSON."""
        return self.root / "settings.json"

    @property
    def state(self) -> Path:
        """Ports and processes, as JSON."""
        return self.root / "state.json"

    @property
    def etc(self) -> Path:
        """slurm.conf, gres.conf, the hooks; seen as /etc/slurm on each node."""
        return self.root / "etc"

    @property
    def slurm_conf(self) -> Path:
        """The cluster's slurm.conf."""
        return self.etc / "slurm.conf"

    @property
    def hosts(self) -> Path:
        """/etc/hosts of the nodes and of the controller."""
        return self.etc / "hosts"

    @property
    def munge(self) -> Path:
        """Folder of munged: socket, key, log."""
        return self.root / "munge"

    @property
    def munge_socket(self) -> Path:
        """munged's socket."""
        return self.munge / "socket"

    @property
    def ctld(self) -> Path:
        """slurmctld's state and log."""
        return self.root / "ctld"

    @property
    def lib(self) -> Path:
        """The fake NVML library."""
        return self.root / "lib"

    @property
    def bin(self) -> Path:
        """Programs that each node has in its /usr/local/bin."""
        return self.root / "bin"

    @property
    def bmc(self) -> Path:
        """BMCs: certificates, credentials, what is served, and the daemon's configuration for them."""
        return self.root / "bmc"

    @property
    def bmc_specs(self) -> Path:
        """The BMCs that are served, as JSON; holds their password."""
        return self.bmc / "bmcs.json"

    @property
    def bmc_control(self) -> Path:
        """Socket of the process that serves them."""
        return self.bmc / "ctl"

    @property
    def bmc_log(self) -> Path:
        """What they were asked to change, one JSON object a line."""
        return self.bmc / "requests.jsonl"

    @property
    def nodes(self) -> Path:
        """One folder a node."""
        return self.root / "nodes"

    def node(self, name: str) -> NodeLayout:
        """Files of one node."""
        return NodeLayout(self.nodes / name)


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Where the files of one emulated node lie, on the machine that runs the sandbox."""

    root: Path

    @property
    def name(self) -> str:
        """The node's name."""
        return self.root.name

    @property
    def control(self) -> Path:
        """Socket of the node's supervisor (its BMC, so to say)."""
        return self.root / "ctl"

    @property
    def machine(self) -> Path:
        """The supervisor's state: power, boot id, processes, faults."""
        return self.root / "machine.json"

    @property
    def config(self) -> Path:
        """The node's /etc/slurm-lifecycle."""
        return self.root / "config"

    @property
    def netboot(self) -> Path:
        """What the install server has for the node's next network boot, as JSON."""
        return self.root / "netboot.json"

    @property
    def product_serial(self) -> Path:
        """The node's /sys/class/dmi/id/product_serial."""
        return self.root / "product_serial"

    @property
    def link(self) -> Path:
        """What node and supervisor share, seen as /run/slc-machine on the node."""
        return self.root / "link"

    @property
    def nvml_state(self) -> Path:
        """State file of the node's fake NVML."""
        return self.link / "nvml.state"

    @property
    def request_fifo(self) -> Path:
        """The node asks its supervisor for a reboot through this FIFO."""
        return self.link / "request"

    @property
    def boot_id(self) -> Path:
        """Boot id of the present boot."""
        return self.root / "boot_id"

    @property
    def kmsg(self) -> Path:
        """Kernel log of the present boot, in the record format of /dev/kmsg."""
        return self.root / "kmsg"

    @property
    def spool(self) -> Path:
        """SlurmdSpoolDir."""
        return self.root / "spool"

    @property
    def logs(self) -> Path:
        """Logs of slurmd, agent and supervisor; they outlive a boot."""
        return self.root / "log"


def pick_ports(count: int, seed: str, taken: Sequence[int] = ()) -> list[int]:
    """Free loopback ports, looked for from a place that depends on the sandbox's name.

    The seed keeps two sandboxes that start at the same time from trying the same ports.
    """
    span = len(PORT_RANGE)
    start = zlib.crc32(seed.encode()) % span
    found: list[int] = []
    for step in range(span):
        port = PORT_RANGE[(start + step) % span]
        if port not in taken and _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise SandboxError(f"no {count} free TCP ports between {PORT_RANGE.start} and {PORT_RANGE.stop}")


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # All addresses, not only loopback: a listener on another one would still stop slurmd from binding.
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
