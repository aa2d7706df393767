"""Watches a Slurm cluster from outside, by what Slurm itself says, and writes down every change.

The witness of the demonstration and of live tests. It imports nothing of the package, so that no mistake of
the package can colour what it sees; it runs as a process of its own:

    python observer.py --log /path/slurmctld.log --interval 0.25

and prints one JSON object a line: `node`, `job`, `reservation` on each change, `log` for each line of
slurmctld's log that matters, `poll` about once a second, `lost` when Slurm did not answer. With `--machines`
it looks at the emulated machines themselves too (`machine`: power, boot, whether the node's first process
lives, the marker on its disk), with `--bmc-log` at what their BMCs were asked to change (`bmc`).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_CALL_TIMEOUT_S = 10.0
# Suffixes that some releases append to a state for people (not responding, powering and so on).
_STATE_MARKS = "*~#!%$@^-"
_REASON = re.compile(
    r"Reason=(?P<text>.*?) \[(?P<by>[^\]\[ ]+@[0-9T:-]{19})\]"
    r"(?= Comment=| Extra=| InstanceId=| InstanceType=| ReservationName=|$)"
)
_LOG_LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\] (.*)")
_LOG_MATTERS = re.compile(
    r"reboot|update_node: |returned to service|not responding|now responding|[Rr]equeue|[Kk]ill|"
    r"NODE_FAIL|Node .* unexpectedly|error: .*node|drain|_job_complete: |reservation"
)
_MAX_LOG_TEXT = 500
_JOB_FIELDS = "JobID:|,State:|,NodeList:|,RestartCnt:|,exit_code:|"
_OUT_TOKENS = frozenset({"DRAIN", "DRAINED", "DRAINING", "DOWN", "NOT_RESPONDING", "FAIL", "UNKNOWN"})
_WORK_TOKENS = frozenset({"MAINTENANCE", "MAINT", "RESERVED", "REBOOT_REQUESTED", "REBOOT_ISSUED"})


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node as Slurm showed it from `at` on."""

    at: float
    state: str
    reason: str = ""
    reason_by: str = ""
    boot_time: str = ""
    extra: str = ""
    comment: str = ""

    @property
    def tokens(self) -> frozenset[str]:
        """Base state and flags."""
        return frozenset(self.state.split("+"))

    @property
    def drained_flag(self) -> bool:
        """Whether DRAIN is set, by whomever."""
        return "DRAIN" in self.tokens

    @property
    def in_service(self) -> bool:
        """Whether any user's job may start there."""
        return bool(self.state) and not self.tokens & (_OUT_TOKENS | _WORK_TOKENS)


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job as squeue showed it from `at` on."""

    at: float
    state: str
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    exit_code: str = ""


@dataclass(frozen=True, slots=True)
class MachineChange:
    """An emulated machine as it truly is from `at` on.

    Attributes:
        alive: the first process of the node runs.
        marker_op, marker_image: what the image on its disk says of itself.
        staged_op: what the install server has for it.
        gpus: serial numbers of the GPUs that are in it, in order of their slots.
    """

    at: float
    power: str
    boot_id: str = ""
    alive: bool = False
    marker_op: str = ""
    marker_image: str = ""
    staged_op: str = ""
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BmcRequest:
    """What a BMC was asked to change; `done`: it took effect, whatever was answered (`status`)."""

    at: float
    method: str
    path: str
    body: Any
    status: int
    done: bool


@dataclass(frozen=True, slots=True)
class ReservationChange:
    """A reservation that is there, or gone, from `at` on."""

    at: float
    there: bool
    nodes: tuple[str, ...] = ()
    flags: str = ""


# ---------------------------------------------------------------- parsing


def expand(hostlist: str) -> tuple[str, ...]:
    """The names in a hostlist with at most one bracket a name: `n[1-3,7],m5`."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", hostlist):
        head, _, inside = part.strip(",").partition("[")
        if not inside:
            names += [head] if head and head != "(null)" else []
            continue
        for piece in inside.rstrip("]").split(","):
            low, _, high = piece.partition("-")
            names += [f"{head}{i:0{len(low)}d}" for i in range(int(low), int(high or low) + 1)]
    return tuple(names)


def parse_nodes(text: str, at: float) -> dict[str, NodeChange]:
    """Nodes of `scontrol -o show node`."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("NodeName="):
            continue
        # What comes after CfgTRES may hold anybody's text; the fields before it do not.
        head, _, tail = line.partition(" CfgTRES=")
        fields = dict(re.findall(r"(?:^| )([A-Za-z]+)=(\S*)", head))
        raw = fields.get("State", "")
        state = "+".join(token.rstrip(_STATE_MARKS) for token in raw.split("+"))
        if "*" in raw:
            state += "+NOT_RESPONDING"
        found[fields["NodeName"]] = NodeChange(
            at, state, boot_time=fields.get("BootTime", ""), **_free_texts(tail)
        )
    return found


def _free_texts(tail: str) -> dict[str, str]:
    """Reason, Comment and Extra, which come last and in this order, each absent when empty."""
    plain = re.match(r"(?:\S*(?: |$))(?:(?!(?:Reason|Comment|Extra)=)\w+=\S* *)*", tail)
    rest = tail[plain.end() if plain else 0 :].rstrip()
    match = _REASON.match(rest)
    if match:
        rest = rest[match.end() :]
    comment, rest = _cut(rest, "Comment=", (" Extra=",))
    extra, rest = _cut(rest, "Extra=", (" InstanceId=", " InstanceType=", " ReservationName="))
    return {
        "reason": match["text"] if match else "",
        "reason_by": match["by"] if match else "",
        "comment": comment,
        "extra": extra,
    }


def _cut(text: str, key: str, ends: tuple[str, ...]) -> tuple[str, str]:
    text = text.lstrip()
    if not text.startswith(key):
        return "", text
    places = [place for place in (text.find(end) for end in ends) if place >= 0]
    place = min(places, default=len(text))
    return text[len(key) : place].rstrip(), text[place:]


def parse_jobs(text: str, at: float) -> dict[str, JobChange]:
    """Jobs of squeue with the fields that `_JOB_FIELDS` names; none of them is written by a user."""
    found = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) >= 5 and parts[0].isdigit():
            restarts = int(parts[3]) if parts[3].isdigit() else 0
            found[parts[0]] = JobChange(at, parts[1], expand(parts[2]), restarts, parts[4])
    return found


def parse_reservations(text: str, at: float) -> dict[str, ReservationChange]:
    """Reservations of `scontrol -o show reservation`."""
    found = {}
    for line in text.splitlines():
        if line.startswith("ReservationName="):
            fields = dict(re.findall(r"(?:^| )([A-Za-z]+)=(\S*)", line))
            nodes = expand(fields.get("Nodes", ""))
            found[fields["ReservationName"]] = ReservationChange(at, True, nodes, fields.get("Flags", ""))
    return found


def look_at_machine(folder: Path, at: float) -> MachineChange | None:
    """One emulated machine, by its own state, its disk, and the process table; None where it has none yet."""
    state = _read_object(folder / "machine.json")
    if not state:
        return None
    marker = _read_object(folder / "config" / "image.json")
    staged = _read_object(folder / "netboot.json")
    return MachineChange(
        at,
        str(state.get("power", "")),
        str(state.get("boot_id", "")),
        _lives(state.get("init")),
        str(marker.get("op_id", "")),
        str(marker.get("image", "")),
        str(staged.get("op_id", "")),
        _gpu_serials(folder / "link" / "nvml.state"),
    )


def _gpu_serials(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return ()
    return tuple(re.findall(r"^gpu\.\d+\.serial=(\S+)$", text, re.M))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lives(init: object) -> bool:
    """Whether that very process runs: its pid, and its start time against a pid that was given again."""
    if not isinstance(init, dict):
        return False
    try:
        text = Path(f"/proc/{init.get('pid')}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    fields = text[text.rfind(")") + 2 :].split()
    return fields[0] not in "ZX" and fields[19] == str(init.get("start_ticks"))


def parse_log_line(line: str) -> tuple[float, str] | None:
    """Time and text of a line of slurmctld's log; its times are local."""
    match = _LOG_LINE.match(line)
    if match is None:
        return None
    seconds = time.mktime(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S"))
    return seconds + float(f"0.{match[2] or 0}"), match[3][:_MAX_LOG_TEXT]


# ---------------------------------------------------------------- watching


class Watcher:
    """Asks Slurm again and again; yields an event for each change."""

    def __init__(self, log: Path | None, machines: Path | None = None, bmc_log: Path | None = None) -> None:
        self._log = log.open("r", encoding="utf-8", errors="replace") if log else None
        self._partial = ""
        self._machines = machines
        self._bmc_log = bmc_log.open("r", encoding="utf-8") if bmc_log else None
        self._bmc_partial = ""
        self._seen: dict[str, dict[str, Any]] = {"node": {}, "job": {}, "reservation": {}, "machine": {}}
        self._polled = 0.0

    def poll(self) -> Iterator[dict[str, Any]]:
        """One round."""
        calls = (
            ("node", ["scontrol", "-o", "show", "node"], parse_nodes),
            ("job", ["squeue", "-h", "-t", "all", "-O", _JOB_FIELDS], parse_jobs),
            ("reservation", ["scontrol", "-o", "show", "reservation"], parse_reservations),
        )
        complete = True
        for kind, argv, parse in calls:
            at = time.time()
            text = _ask(argv)
            if text is None:
                complete = False
                yield {"kind": "lost", "at": at, "what": kind}
                continue
            yield from self._changes(kind, parse(text, at), at)
        yield from self._log_lines()
        yield from self._hardware()
        if complete and time.time() - self._polled >= 1.0:
            self._polled = time.time()
            yield {"kind": "poll", "at": self._polled}

    def _changes(self, kind: str, found: Mapping[str, Any], at: float) -> Iterator[dict[str, Any]]:
        seen = self._seen[kind]
        for name, one in found.items():
            value = {key: item for key, item in asdict(one).items() if key != "at"}
            if seen.get(name) != value:
                seen[name] = value
                yield {"kind": kind, "name": name, "at": at, **value}
        for name in [name for name in seen if name not in found]:
            del seen[name]
            yield {"kind": kind, "name": name, "at": at, "gone": True}

    def _hardware(self) -> Iterator[dict[str, Any]]:
        if self._machines is not None:
            at = time.time()
            looks = {one.name: look_at_machine(one, at) for one in sorted(self._machines.iterdir())}
            yield from self._changes("machine", {name: one for name, one in looks.items() if one}, at)
        if self._bmc_log is not None:
            lines = (self._bmc_partial + self._bmc_log.read()).split("\n")
            self._bmc_partial = lines.pop()
            for line in lines:
                asked = json.loads(line)
                yield {"kind": "bmc", "name": asked.pop("node"), **asked}

    def _log_lines(self) -> Iterator[dict[str, Any]]:
        if self._log is None:
            return
        lines = (self._partial + self._log.read()).split("\n")
        self._partial = lines.pop()
        for line in lines:
            parsed = parse_log_line(line)
            if parsed is not None and _LOG_MATTERS.search(parsed[1]):
                yield {"kind": "log", "at": parsed[0], "text": parsed[1]}


def _ask(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_CALL_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else None


def main(argv: Iterable[str] | None = None) -> int:
    """Entry point: watches until it is killed or nobody reads any more."""
    parser = argparse.ArgumentParser(description="Watch a Slurm cluster; print each change as a JSON line.")
    parser.add_argument("--log", type=Path, help="slurmctld's log")
    parser.add_argument("--machines", type=Path, help="folder with one folder an emulated machine")
    parser.add_argument("--bmc-log", type=Path, help="log of what emulated BMCs were asked to change")
    parser.add_argument("--interval", type=float, default=0.25, help="seconds between two rounds")
    options = parser.parse_args(None if argv is None else list(argv))
    watcher = Watcher(options.log, options.machines, options.bmc_log)
    try:
        while True:
            began = time.monotonic()
            for event in watcher.poll():
                print(json.dumps(event))
            sys.stdout.flush()
            time.sleep(max(0.02, options.interval - (time.monotonic() - began)))
    except (BrokenPipeError, KeyboardInterrupt):
        return 0


if __name__ == "__main__":
    sys.exit(main())
