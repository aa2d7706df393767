"""The real daemon as a child, a scontrol for it that can be spoiled, and a sandbox cleaned between tests."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.node_handle import Node
from tests.live.outside import LONG_S, Slurm, wait_until

RUN = "/run/slurm-lifecycle"
_CLI = [sys.executable, "-c", "from slurm_lifecycle.cli.main import main; main()"]

_WRAPPER = """\
#!/bin/sh
# Passes on to the real command, unless it is told to misbehave; notes what it was asked.
d={folder}
line=" $* "
printf '%s\\n' "{name}$line" >>"$d/calls"
if [ -f "$d/mode" ]; then
    case $(cat "$d/mode") in
        garbage) printf 'NodeName=n1 Arch=\\001\\377 State=ID\\nJobId=|||\\n\\n===='; exit 0 ;;
        empty) exit 0 ;;
        fail) echo 'slurm_load: Unable to contact slurm controller (connect failure)' >&2; exit 1 ;;
        hang) exec sleep 600 ;;
    esac
fi
if [ -f "$d/pattern" ]; then
    pattern=$(cat "$d/pattern")
    case $line in
        *"$pattern"*)
            if mv "$d/pattern" "$d/hit" 2>/dev/null; then
                [ ! -f "$d/before" ] || . "$d/before"
                {real} "$@"; rc=$?
                [ ! -f "$d/after" ] || . "$d/after"
                exit $rc
            fi ;;
    esac
fi
exec {real} "$@"
"""


class Wrapper:
    """A scontrol and squeue for the daemon alone, between it and the real ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("scontrol", "squeue"):
            real = shutil.which(name) or f"/usr/bin/{name}"
            script = folder / name
            script.write_text(_WRAPPER.format(folder=shlex.quote(str(folder)), name=name, real=real))
            script.chmod(0o755)

    def spoil(self, mode: str) -> None:
        """`garbage`, `empty`, `fail`, `hang`, or "" for well."""
        path = self.folder / "mode"
        if mode:
            path.write_text(mode)
        else:
            path.unlink(missing_ok=True)

    def on(self, pattern: str, *, before: str = "", after: str = "") -> None:
        """Shell around the next call whose arguments hold the pattern; there `$PPID` is the daemon."""
        for name, text in (("before", before), ("after", after)):
            (self.folder / name).write_text(text + "\n")
        (self.folder / "hit").unlink(missing_ok=True)
        (self.folder / "pattern").write_text(pattern)

    @property
    def hit(self) -> bool:
        """Whether that call came."""
        return (self.folder / "hit").exists()

    def calls(self) -> list[str]:
        """Everything that was asked so far."""
        path = self.folder / "calls"
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    def writes(self) -> list[str]:
        """The calls that change something."""
        words = (" update ", " reboot ", " create ", " delete ", " release ", " requeue ")
        return [line for line in self.calls() if any(word in line for word in words)]


DEFAULT_POLICY: Mapping[str, Mapping[str, Any]] = {
    "budget": {"max_out": 8, "max_working": 8},
    "breaker": {"least": 50, "most": 50},
    "adopt": {"slurm": True, "after": "4s"},
    "deadlines": {
        "drain": "20min",
        "verify": "60s",
        "verify_settle": "1s",
        "return": "90s",
        "retry_after": "1s",
    },
    "relapse": {"window": "1s", "lemon_7d": 90, "lemon_28d": 90},
    "paths": {
        "reboot": [{"rung": "reboot", "deadline": "100s"}, {"rung": "rma", "deadline": "60s"}],
        "transient": [{"rung": "verify", "attempts": 2, "deadline": "30s"}],
    },
}


def toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    return json.dumps(value) if isinstance(value, str) else str(value)


@dataclass
class Daemon:
    """The real daemon with a configuration of its own.

    Attributes:
        prefix: command before the daemon's, for another host name or such.
    """

    slurm: Slurm
    folder: Path
    store: Path = Path("/nonexistent")
    prefix: Sequence[str] = ()
    site: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.wrapper = Wrapper(self.folder / "bin")
        if self.store == Path("/nonexistent"):
            self.store = self.folder / "store" / "store.db"
        self.config = self.folder / "slurm-lifecycle.toml"
        self.log = self.folder / "daemon.log"
        self.write_config()

    def write_config(self) -> None:
        """Writes both files from `site` and `policy` over the defaults of these tests."""
        tables: dict[str, Any] = {
            "mode": "act",
            "partitions": ["*"],
            "rungs": ["drain", "return", "reboot", "rma"],
            "store": {"path": str(self.store)},
            "slurm": {
                "scontrol": str(self.wrapper.folder / "scontrol"),
                "squeue": str(self.wrapper.folder / "squeue"),
                "timeout_s": 5.0,
            },
            "daemon": {"interval_s": 0.5, "metrics_port": 0, "log_format": "json"},
            "rma": {"folder": str(self.folder / "tickets")},
            **self.site,
        }
        self.config.write_text("".join(f"{key} = {toml(value)}\n" for key, value in tables.items()))
        policy = {
            name: {**DEFAULT_POLICY.get(name, {}), **self.policy.get(name, {})}
            for name in {**DEFAULT_POLICY, **self.policy}
        }
        text = "".join(f"{key} = {toml(value)}\n" for key, value in policy.items())
        (self.folder / "policy.toml").write_text(text)

    def start(self) -> Daemon:
        """Starts it and waits until it said something."""
        size = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            argv = [*self.prefix, *_CLI, "--config", str(self.config), "daemon"]
            self.process = subprocess.Popen(
                argv,
                env=self.slurm.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(lambda: self.log.stat().st_size > size, f"the daemon speaks in {self.log}")
        return self

    def run_cli(self, *arguments: str, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Another command of the CLI with the same configuration."""
        argv = [*(prefix or self.prefix), *_CLI, "--config", str(self.config), *arguments]
        return self.slurm.run(*argv, timeout_s=90.0)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it; returns its exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def kill(self) -> None:
        """As a crash would."""
        self.stop(signal.SIGKILL)

    def text(self) -> str:
        """Its whole log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def says(self, *words: str) -> bool:
        """Whether one line of its log holds all the words."""
        return any(all(word in line for word in words) for line in self.text().splitlines())


@contextlib.contextmanager
def killed_at_end(*daemons: Daemon) -> Iterator[None]:
    """Ends the daemons with the test, however it ends."""
    try:
        yield
    finally:
        for one in daemons:
            one.kill()


def verdict_ok(slurm: Slurm, node: str) -> bool:
    """Whether the node's agent says `ok` of its present boot."""
    words = slurm.node(node).extra.rpartition("slc1 ")[2].split()
    return len(words) == 5 and words[0] == slurm.machine(node)["boot_id"] and words[2] == "ok"


def clean(sandbox: Sandbox, slurm: Slurm) -> None:
    """Every node healthy, in service, without marks, jobs and fences, whatever a test left."""
    slurm.run("scancel", "--full", "-u", "root")
    for job_id in slurm.run("squeue", "-h", "-o", "%A").stdout.split():
        slurm.run("scancel", "-s", "KILL", job_id)
    dirty = []
    for node in sandbox.nodes():
        if slurm.machine(node.name)["faults"]:
            node.clear()
        if not verdict_ok(slurm, node.name) or not slurm.node(node.name).in_service:
            dirty.append(node)
    wait_until(lambda: not slurm.run("squeue", "-h").stdout, "no job is left")
    for name in slurm.fences():
        slurm.run("scontrol", "delete", f"ReservationName={name}")
    slurm.run("scontrol", "update", f"NodeName={sandbox.settings.hostlist()}", "Comment=")
    for node in dirty:
        if not verdict_ok(slurm, node.name):
            node.reboot() if node.power() == "on" else node.power_on()

    def well(name: str) -> bool:
        seen = slurm.node(name)
        if not verdict_ok(slurm, name):
            return False
        if seen.state & {"DRAIN", "DOWN"}:
            slurm.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
        return seen.in_service and "MAINTENANCE" not in seen.state

    for node in dirty:
        wait_until(partial(well, node.name), f"{node.name} healthy and in service", 2 * LONG_S)


@contextlib.contextmanager
def acting(slurm: Slurm, folder: Path, **settings: Any) -> Iterator[Daemon]:
    """A daemon that has claimed the cluster; ended with the block."""
    daemon = Daemon(slurm, folder, **settings)
    with killed_at_end(daemon):
        daemon.start()
        wait_until(lambda: "slcd[" in slurm.node("n1").comment, f"the claim: {daemon.text()[-1000:]}")
        yield daemon


def returned(slurm: Slurm, daemon: Daemon, node: str) -> None:
    """Waits until the daemon says that the node is back, and Slurm says so too."""
    wait_until(
        lambda: daemon.says('"transition"', "-> closed: in service", f'"{node}"'),
        f"{node} returned: {daemon.text()[-3000:]}",
    )
    wait_until(lambda: slurm.node(node).in_service, f"{node} in service")
    assert not [name for name, nodes in slurm.fences().items() if nodes == node]


def signal_agent(node: Node, name: str) -> None:
    """A signal to the node's agent."""
    done = node.run(["sh", "-c", f'kill -{name} $(pgrep -f "slurm_lifecycle[.]node$")'])
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def frozen_agent(node: Node) -> Iterator[Node]:
    """A node whose agent is stopped in its tracks: its verdict file says what the test writes."""
    signal_agent(node, "STOP")
    try:
        yield node
    finally:
        node.run(["sh", "-c", f"cd {RUN} && rm -rf verdict failopen.prolog"])
        signal_agent(node, "CONT")
        signal_agent(node, "TERM")
        # The next one writes a verdict of its own at once.
        wait_until(lambda: node.run(["test", "-s", f"{RUN}/verdict"]).returncode == 0, "a verdict again")


def write_verdict(node: Node, shell: str) -> None:
    """Makes the verdict by shell in the run directory; `$u` is the uptime in seconds, `$b` the boot id."""
    head = "read -r u rest </proc/uptime; u=${u%%.*}; read -r b </proc/sys/kernel/random/boot_id"
    done = node.run(["sh", "-c", f"cd {RUN} && rm -rf verdict failopen.prolog && {head} && {shell}"])
    assert done.returncode == 0, done.stderr


def lets_a_job_run(slurm: Slurm, node: Node, name: str) -> None:
    """A job runs to its end on the node, and the prolog left word that it could not judge."""
    job = slurm.submit("-w", node.name, "-t", "1", script="true")
    wait_until(lambda: slurm.job(job)["state"] == "COMPLETED", f"{name}: the job runs")
    marker = node.run(["cat", f"{RUN}/failopen.prolog"]).stdout
    assert "verdict" in marker, (name, marker)
    assert slurm.node(node.name).in_service, name
