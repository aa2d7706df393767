"""The cluster as an administrator sees it, for live tests to judge by.

Imports nothing of the package: a defect in its parsers must not hide itself from its tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STATE = re.compile(r" State=(\S+)")
_REASON = re.compile(r" Reason=(.*) \[\w+@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\]", re.S)
_OUT = {"DRAIN", "DOWN", "NOT_RESPONDING", "REBOOT_REQUESTED", "REBOOT_ISSUED", "UNKNOWN"}
# Far above what a step takes on two busy cores: a deadline here means "never", not "slow".
LONG_S = 120.0


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = LONG_S) -> None:
    """Waits until the condition holds; fails with `what` and its last falsy value when it never does."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = condition()
        if seen:
            return
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what} (last: {seen!r})"
        time.sleep(0.15)


def stays(condition: Callable[[], object], what: str, for_s: float) -> None:
    """Fails as soon as the condition does not hold within the given time."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert condition(), what
        time.sleep(0.15)


@dataclass(frozen=True)
class Seen:
    """One node as scontrol printed it."""

    state: frozenset[str]
    reason: str
    comment: str
    extra: str

    @property
    def in_service(self) -> bool:
        """Whether jobs may start there (apart from reservations)."""
        return bool(self.state) and not self.state & _OUT


def parse_node(record: str) -> Seen:
    """One record of `scontrol -o show node`. State stands before CfgTRES, free text after it."""
    head, _, tail = record.partition(" CfgTRES=")
    found = _STATE.search(head)
    raw = found[1] if found else ""
    state = set(raw.rstrip("*").split("+")) if raw else set()
    if raw.endswith("*"):
        state.add("NOT_RESPONDING")
    reason = _REASON.search(tail)
    extra = tail.rpartition(" Extra=")[2] if " Extra=" in tail else ""
    comment = ""
    if " Comment=" in tail:
        comment = tail.partition(" Comment=")[2].rpartition(" Extra=")[0] or tail.partition(" Comment=")[2]
    return Seen(frozenset(state), reason[1] if reason else "", comment.strip(), extra.strip())


class Slurm:
    """The cluster, asked and changed as an administrator would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {**os.environ, "SLURM_CONF": str(root / "etc" / "slurm.conf"), "TZ": "UTC"}

    def run(self, *argv: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Any client command."""
        return subprocess.run(
            list(argv),
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def scontrol(self, *arguments: str) -> str:
        """scontrol, which must succeed."""
        done = self.run("scontrol", *arguments)
        assert done.returncode == 0, f"scontrol {arguments}: {done.stderr or done.stdout}"
        return done.stdout

    def nodes(self) -> dict[str, Seen]:
        """All nodes; empty when slurmctld does not answer."""
        done = self.run("scontrol", "-o", "show", "node")
        if done.returncode:
            return {}
        records = re.split(r"(?:^|\n)(?=NodeName=)", done.stdout)
        return {one.split()[0].removeprefix("NodeName="): parse_node(one) for one in records if one.strip()}

    def node(self, name: str) -> Seen:
        """One node."""
        return self.nodes().get(name, Seen(frozenset(), "", "", ""))

    def fences(self) -> dict[str, str]:
        """Names of reservations that begin with `slc-`, and their nodes."""
        text = self.run("scontrol", "-o", "show", "reservation").stdout
        found = re.findall(r"^ReservationName=(slc-\S+) .*? Nodes=(\S+)", text, re.M)
        return dict(found)

    def job(self, job_id: str) -> dict[str, str]:
        """State, nodes, reason, restarts of a job."""
        out = self.run(
            "squeue", "-h", "-j", job_id, "--states=all", "-O", "State:|,NodeList:|,Reason:|"
        ).stdout
        words = [*out.strip().split("|"), "", "", ""]
        return {"state": words[0], "nodes": words[1], "reason": words[2]}

    def submit(self, *options: str, script: str = "sleep 600") -> str:
        """A batch job of one node; returns its id."""
        argv = ["sbatch", "--parsable", "-o", "/dev/null", "-n1", *options, "--wrap", script]
        done = self.run(*argv)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split(";")[0]

    def start_job(self, node: str, *options: str, script: str = "sleep 600") -> str:
        """A job that runs on that node."""
        job_id = self.submit("-w", node, *options, script=script)
        wait_until(lambda: self.job(job_id)["state"] == "RUNNING", f"job {job_id} runs on {node}")
        return job_id

    def drain(self, node: str, reason: str) -> None:
        """A person's drain."""
        self.scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def undrain(self, node: str) -> None:
        """A person's undrain."""
        self.scontrol("update", f"NodeName={node}", "State=UNDRAIN")

    def machine(self, node: str) -> dict[str, Any]:
        """The emulated machine's own record: boots, boot id, power."""
        while True:
            with contextlib.suppress(ValueError):
                found: dict[str, Any] = json.loads((self.root / "nodes" / node / "machine.json").read_text())
                return found

    def boots(self, node: str) -> int:
        """How often the machine has really booted."""
        return int(self.machine(node)["boots"])


class Observer:
    """Polls nodes and reservations and keeps every change, so that short states are seen as well."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.history: dict[str, list[Seen]] = {}

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for name, seen in self._slurm.nodes().items():
                past = self.history.setdefault(name, [])
                if not past or past[-1] != seen:
                    past.append(seen)

    def reasons(self, node: str) -> list[str]:
        """Every reason that stood on the node while it was out, in order."""
        found: list[str] = []
        for seen in self.history.get(node, []):
            if seen.state & {"DRAIN", "DOWN"} and (not found or found[-1] != seen.reason):
                found.append(seen.reason)
        return found
