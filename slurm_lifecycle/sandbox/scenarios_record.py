"""The observer's record, put together again from its events, and what follows from it.

Like the observer it knows nothing of the suite: only nodes, jobs, reservations and slurmctld's log.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_lifecycle.sandbox.observer import (
    BmcRequest,
    JobChange,
    MachineChange,
    NodeChange,
    ReservationChange,
    expand,
)

# Two registrations of one boot may differ by a second: slurmd computes its boot time anew each time.
_BOOT_TIME_JITTER_S = 2.0


@dataclass(slots=True)
class Record:
    """Everything that was seen, and what follows from it."""

    nodes: dict[str, list[NodeChange]] = field(default_factory=dict)
    jobs: dict[str, list[JobChange]] = field(default_factory=dict)
    reservations: dict[str, list[ReservationChange]] = field(default_factory=dict)
    machines: dict[str, list[MachineChange]] = field(default_factory=dict)
    bmcs: dict[str, list[BmcRequest]] = field(default_factory=dict)
    log: list[tuple[float, str]] = field(default_factory=list)
    polls: list[float] = field(default_factory=list)
    lost: int = 0

    def feed(self, event: Mapping[str, Any]) -> None:
        """Takes one event of a watcher."""
        kind, at, gone = event["kind"], float(event["at"]), bool(event.get("gone"))
        value = {key: item for key, item in event.items() if key not in ("kind", "name", "gone")}
        if kind == "log":
            self.log.append((at, str(event["text"])))
        elif kind == "poll":
            self.polls.append(at)
        elif kind == "lost":
            self.lost += 1
        elif kind == "node":
            change = NodeChange(at, "GONE") if gone else NodeChange(**value)
            self.nodes.setdefault(str(event["name"]), []).append(change)
        elif kind == "job" and not gone:
            # A job that squeue no longer lists ended long ago: its last state stays.
            value["nodes"] = tuple(value["nodes"])
            self.jobs.setdefault(str(event["name"]), []).append(JobChange(**value))
        elif kind == "machine" and not gone:
            value["gpus"] = tuple(value.get("gpus", ()))
            self.machines.setdefault(str(event["name"]), []).append(MachineChange(**value))
        elif kind == "bmc":
            self.bmcs.setdefault(str(event["name"]), []).append(BmcRequest(**value))
        elif kind == "reservation":
            there = {"there": False} if gone else {**value, "nodes": tuple(value["nodes"])}
            self.reservations.setdefault(str(event["name"]), []).append(
                ReservationChange(**{**there, "at": at})
            )

    # ---- nodes

    def now(self, node: str) -> NodeChange:
        """The node as it was last seen."""
        changes = self.nodes.get(node)
        return changes[-1] if changes else NodeChange(0.0, "")

    def story(self, node: str, since: float, until: float = float("inf")) -> list[NodeChange]:
        """Changes in a stretch of time, what held at its beginning first."""
        changes = self.nodes.get(node, [])
        before = [change for change in changes if change.at <= since]
        return before[-1:] + [change for change in changes if since < change.at <= until]

    def boots(self, node: str, since: float, until: float = float("inf")) -> list[float]:
        """When a new boot time was first seen."""
        found: list[float] = []
        last: float | None = None
        for change in self.story(node, since, until):
            boot = _seconds(change.boot_time)
            if boot is None:
                continue
            if last is not None and abs(boot - last) > _BOOT_TIME_JITTER_S:
                found.append(change.at)
            last = boot
        return found

    def reboot_requests(self, node: str, since: float, until: float = float("inf")) -> list[float]:
        """When slurmctld took a reboot request for the node, by its log."""
        return [
            at
            for at, text in self.log
            if since <= at <= until
            and text.startswith("reboot request queued for nodes ")
            and node in expand(text.rpartition(" ")[2])
        ]

    def reasons_set(self, node: str, since: float, until: float = float("inf")) -> list[tuple[float, str]]:
        """Reasons that somebody gave the node, by slurmctld's log: it misses none, however short."""
        head = f"update_node: node {node} reason set to: "
        return [
            (at, text[len(head) :]) for at, text in self.log if since <= at <= until and text.startswith(head)
        ]

    # ---- machines and BMCs

    def machine(self, node: str, since: float, until: float = float("inf")) -> list[MachineChange]:
        """What the machine was in a stretch of time, what held at its beginning first."""
        changes = self.machines.get(node, [])
        before = [change for change in changes if change.at <= since]
        return before[-1:] + [change for change in changes if since < change.at <= until]

    def asked(self, node: str, since: float, until: float = float("inf")) -> list[BmcRequest]:
        """What the node's BMC was asked to change in a stretch of time."""
        return [one for one in self.bmcs.get(node, []) if since <= one.at <= until]

    # ---- jobs and reservations

    def job_state(self, job: str, at: float) -> str:
        """The job's state at a moment."""
        past = [change.state for change in self.jobs.get(job, []) if change.at <= at]
        return past[-1] if past else ""

    def jobs_on(self, node: str, since: float, until: float = float("inf")) -> dict[str, list[JobChange]]:
        """What was seen, until then, of jobs that were on the node and had not ended before `since`."""
        seen = {job: [one for one in changes if one.at <= until] for job, changes in self.jobs.items()}
        return {
            job: changes
            for job, changes in seen.items()
            if any(node in one.nodes for one in changes)
            and not (_ended(changes[-1]) and changes[-1].at < since)
        }

    def fenced_at(self, node: str, at: float, prefix: str) -> bool:
        """Whether a reservation with the prefix, of flag MAINT, stood over the node at that time."""
        for name, changes in self.reservations.items():
            last = next((one for one in reversed(changes) if one.at <= at), None)
            if (
                name.startswith(prefix)
                and last
                and last.there
                and node in last.nodes
                and "MAINT" in last.flags
            ):
                return True
        return False

    def fences_over(self, node: str, since: float, prefix: str) -> list[str]:
        """Reservations with the prefix that stood over the node at any time since."""
        return [
            name
            for name, changes in self.reservations.items()
            if name.startswith(prefix) and any(c.there and node in c.nodes and c.at >= since for c in changes)
        ]

    def longest_gap_s(self, since: float, until: float) -> float:
        """The longest time in which nothing was seen: what happened then is unknown."""
        times = [since, *(at for at in self.polls if since < at < until), until]
        return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


def _ended(change: JobChange) -> bool:
    return change.state not in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "STOPPED")


def _seconds(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
