"""What scontrol and squeue print, as values. Runs no command and reads no clock.

Nodes and reservations are read in scontrol's form of many lines, not the `-o` form: there each field that a
person writes (Reason, Comment, Extra) starts a line of its own, so a text of one line can hold anything,
` Reason=fake State=DOWN` and ` Extra=x` included, and still comes back exactly. Under `-o` the Comment
`a Extra=b` and the Comment `a` with the Extra `b` print the same.

Only root and SlurmUser write node fields. What such a text may still do is make its own node unreadable; it
never moves a value to another node. A node that appears twice, or whose record cannot be read, gets the one
state token `UNREADABLE`, on which nobody acts: one odd node must not stop the care of all others. A read
that is cut off, or that is not a list of nodes at all, raises TransientError as a whole.
"""

import calendar
import re
from functools import lru_cache

from slurm_lifecycle.core.model import JobView, NodeView, ReservationView
from slurm_lifecycle.core.ownership import UNREADABLE
from slurm_lifecycle.errors import TransientError
from slurm_lifecycle.slurm.hostlist import expand

# squeue's machine fields, the text of Slurm's own making last, each record closed by `|;`. Names, comments
# and every other field that a user writes stay out: one of them with a line break would forge a record.
# JobArrayID and not JobID: the last task of an array bears the array's own number, and `scontrol requeue`
# with that number takes the whole array.
JOB_FORMAT = "JobArrayID:|,State:|,UserID:|,RestartCnt:|,NodeList:|,Reason:|;"

# Base states in which a job is over. squeue prints a flag in their place (COMPLETING, STAGE_OUT, ...) while
# something of the job is left, and any word that is not here counts as a job that holds its nodes.
TERMINAL_STATES = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_STATE = re.compile(r"[A-Z_]+\*?(?:\+[A-Z_]+\*?)*")
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")
_STAMP = re.compile(r" \[[^\[\]\n]+@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]")
# The tail of a node record: in this order on every release, each field absent when empty.
TAIL_KEYS = ("Reason", "Comment", "Extra", "InstanceId", "InstanceType", "ReservationName")
_TAIL_PLACES = {key: place for place, key in enumerate(TAIL_KEYS)}
# Slurm breaks a Reason of many lines by itself and indents what follows by ten blanks.
_REASON_BREAK = "\n          "
_GPU = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)(?=[(,]|$)")
_JOB_ID = re.compile(r"\d+(?:_\d+|_\[[0-9,%:.\-]*\]|\+\d+)?")
_JOB_HEADING = re.compile(r"[A-Z_]+(?:\|[A-Z_]+){5}")
_WORD = re.compile(r"[A-Z_]+")
_RESERVATION = re.compile(
    r"(?P<name>[^\n]*) StartTime=(?P<start>\S+) EndTime=(?P<end>\S+) Duration=\S+\n"
    r"   Nodes=(?P<nodes>\S*) NodeCnt=\d+ [^\n]* Flags=(?P<flags>\S*)[^\n]*\n"
    r"(?:   [^\n]*\n)*?"
    r"   Users=(?P<users>\S*) "
)
_CONFIG_LINE = re.compile(r"^([A-Za-z][A-Za-z0-9_./-]*(?:\[\d+\])?)\s*= ?(.*)$")


class _Unreadable(ValueError):
    """One record cannot be read."""


# ---------------------------------------------------------------- nodes


def parse_nodes(text: str) -> dict[str, NodeView]:
    """Read the output of `scontrol show node`.

    Args:
        text: the whole output, made with TZ=UTC, LC_ALL=C and SLURM_TIME_FORMAT=standard.

    Returns:
        Views by name; an unreadable node has the state `{UNREADABLE}` and nothing else.

    Raises:
        TransientError: the text is cut off, or is no list of nodes.
    """
    records = _split_records(text, "NodeName=", "read nodes")
    nodes: dict[str, NodeView] = {}
    for record in records:
        name = record[: record.find(" ")]
        if name in nodes:
            nodes[name] = NodeView(name=name, state=frozenset({UNREADABLE}))
            continue
        try:
            nodes[name] = _parse_node(name, record)
        except ValueError:
            nodes[name] = NodeView(name=name, state=frozenset({UNREADABLE}))
    return nodes


def _split_records(text: str, key: str, operation: str) -> list[str]:
    """Records of scontrol's form of many lines, without the key they begin with.

    A record ends with an empty line. A text that holds a line break and then the key does not end it.
    """
    if not text.startswith(key):
        # `No reservations in the system`. Nothing at all is no answer.
        if text.startswith("No "):
            return []
        raise TransientError(operation, f"unexpected output of scontrol: {text[:80]!r}")
    if not text.endswith("\n\n"):
        raise TransientError(operation, "the output of scontrol is cut off")
    return text[len(key) : -2].split("\n\n" + key)


def _parse_node(name: str, record: str) -> NodeView:
    if not _NODE_NAME.fullmatch(name):
        raise _Unreadable(name)
    gres, gres_at = _value(record, "\n   Gres=", "\n", 0)
    state, state_at = _value(record, "\n   State=", " ", gres_at)
    boot, boot_at = _value(record, "\n   BootTime=", " ", state_at)
    started, at = _value(record, "SlurmdStartTime=", "\n", boot_at)
    _, at = _value(record, "\n   CfgTRES=", "\n", at)
    tail_at = record.find("\n   AllocTRES=", at)
    if tail_at < 0:
        raise _Unreadable("AllocTRES")
    partitions_at = record.find("\n   Partitions=", state_at, boot_at)
    partitions = (
        record[partitions_at + 15 : record.find("\n", partitions_at + 15)] if partitions_at >= 0 else ""
    )
    version_at = record.find("Version=", gres_at, state_at)
    version = record[version_at + 8 : record.find("\n", version_at)] if version_at >= 0 else ""
    reason, reason_at_s, comment, extra = _parse_tail(record[tail_at + 1 :])
    return NodeView(
        name=name,
        state=_state_tokens(state),
        reason=reason,
        reason_at_s=reason_at_s,
        comment=comment,
        extra=extra,
        boot_time_s=parse_time(boot),
        slurmd_start_s=parse_time(started),
        partitions=_names(partitions.strip()),
        gpus=_gpu_count(gres),
        version=version.strip(),
    )


def _value(record: str, key: str, end: str, start: int) -> tuple[str, int]:
    """The value behind `key`, and where it ends; each key is looked for behind the one before it."""
    at = record.find(key, start)
    if at < 0:
        raise _Unreadable(key)
    at += len(key)
    stop = record.find(end, at)
    if stop < 0:
        raise _Unreadable(key)
    return record[at:stop], stop


def _parse_tail(tail: str) -> tuple[str, float | None, str, str]:
    """Reason, its time, Comment and Extra: walk what follows AllocTRES from its start.

    Lines before the first key are Slurm's own (power); lines after it that bear no key belong to its text.
    A key out of its order, or twice, stands inside of a text with line breaks: nobody can tell which is real.
    """
    values: dict[str, str] = {}
    key, last = "", -1
    for line in tail.split("\n   "):
        name, equals, value = line.partition("=")
        place = _TAIL_PLACES.get(name) if equals else None
        if place is None:
            if key:
                values[key] += "\n   " + line
        elif place <= last:
            raise _Unreadable("tail")
        else:
            values[name] = value
            key, last = name, place
    reason, reason_at_s = _parse_reason(values["Reason"]) if "Reason" in values else ("", None)
    return reason, reason_at_s, values.get("Comment", ""), values.get("Extra", "")


def _parse_reason(value: str) -> tuple[str, float | None]:
    """Split off the stamp, which Slurm puts at the end of the first line."""
    first, line_break, rest = value.partition("\n")
    stamp_at = first.rfind(" [")
    stamp = _STAMP.fullmatch(first, stamp_at) if stamp_at >= 0 else None
    text = first[:stamp_at] if stamp else first
    if line_break:
        text += (line_break + rest).replace(_REASON_BREAK, "\n")
    return printable(text), parse_time(stamp.group(1)) if stamp else None


def printable(text: str) -> str:
    """Bytes that are not UTF-8 (kept as surrogates until here) as question marks, fit for a store."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@lru_cache(maxsize=1_024)
def _state_tokens(text: str) -> frozenset[str]:
    if not _STATE.fullmatch(text):
        raise _Unreadable(text)
    tokens = set(text.replace("*", "").split("+"))
    if "*" in text:
        tokens.add("NOT_RESPONDING")
    return frozenset(tokens)


@lru_cache(maxsize=1_024)
def _names(text: str) -> tuple[str, ...]:
    return () if text in ("", "(null)") else tuple(text.split(","))


@lru_cache(maxsize=1_024)
def _gpu_count(gres: str) -> int:
    """GPUs of all types: `gpu:8`, `gpu:h100:8(S:0-1)`, `gpu:a:4,gpu:b:4`."""
    return sum(int(count) for count in _GPU.findall(gres))


@lru_cache(maxsize=65_536)
def parse_time(text: str) -> float | None:
    """A time as scontrol prints it under TZ=UTC; None where there is none (`None`, `Unknown`, `N/A`)."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    return float(calendar.timegm(tuple(int(part) for part in match.groups())))


# ---------------------------------------------------------------- jobs


def parse_jobs(text: str) -> tuple[JobView, ...]:
    """Read the output of `squeue --all --states=all -O JOB_FORMAT`, jobs that are over left out.

    The heading is asked for, because it tells an empty queue from an answer that did not come.

    Raises:
        TransientError: any record cannot be read. A job that is not seen would make its node look free,
            so there is no leaving one out here.
    """
    if not text.endswith("|;\n"):
        raise TransientError("read jobs", f"the output of squeue is cut off: {text[-80:]!r}")
    heading, *records = text[:-3].split("|;\n")
    if not _JOB_HEADING.fullmatch(heading):
        raise TransientError("read jobs", f"unexpected output of squeue: {heading[:80]!r}")
    jobs = []
    for record in records:
        fields = record.split("|", 5)
        if len(fields) != 6:
            raise TransientError("read jobs", f"unexpected output of squeue: {record[:80]!r}")
        if fields[1] in TERMINAL_STATES:
            continue
        try:
            jobs.append(_job(fields))
        except ValueError as error:
            raise TransientError("read jobs", f"unexpected output of squeue: {record[:80]!r}") from error
    return tuple(jobs)


def _job(fields: list[str]) -> JobView:
    job_id, state, uid, restarts, nodes, reason = fields
    # squeue shortens a long list of array tasks to `12_[1,3,5,...]`, which the pattern allows.
    if not _JOB_ID.fullmatch(job_id) or not _WORD.fullmatch(state):
        raise ValueError(job_id)
    return JobView(
        job_id=job_id,
        state=state,
        nodes=expand(nodes) if nodes else (),
        uid=int(uid),
        restarts=int(restarts),
        reason="" if reason == "None" else printable(reason),
    )


# ---------------------------------------------------------------- reservations, configuration


def parse_reservations(text: str) -> dict[str, ReservationView]:
    """Read the output of `scontrol show reservation`.

    Raises:
        TransientError: any record cannot be read, or a name appears twice. A fence must not be
            taken for one that it is not, and operators, who may not touch nodes, choose these names.
    """
    reservations: dict[str, ReservationView] = {}
    for record in _split_records(text, "ReservationName=", "read reservations"):
        match = _RESERVATION.match(record)
        if not match:
            raise TransientError("read reservations", f"cannot read reservation {record[:60]!r}; rename it")
        name = match["name"]
        start_s, end_s = parse_time(match["start"]), parse_time(match["end"])
        if name in reservations or start_s is None or end_s is None:
            raise TransientError("read reservations", f"cannot read reservation {name[:60]!r}; rename it")
        try:
            nodes = expand(match["nodes"])
        except ValueError as error:
            raise TransientError("read reservations", f"reservation {name[:60]!r}: {error}") from error
        reservations[name] = ReservationView(
            name=name,
            nodes=nodes,
            start_s=start_s,
            end_s=end_s,
            flags=frozenset(_names(match["flags"])),
            users=_names(match["users"]),
        )
    return reservations


def parse_config(text: str) -> dict[str, str]:
    """Read the output of `scontrol show config`: values as printed, `(null)` as the empty text.

    Later sections (cgroup and others) do not replace a key of slurm.conf.

    Raises:
        TransientError: not a configuration.
    """
    if not text.startswith("Configuration data as of"):
        raise TransientError("read configuration", f"unexpected output of scontrol: {text[:80]!r}")
    config: dict[str, str] = {}
    for line in text.split("\n"):
        match = _CONFIG_LINE.match(line)
        if match:
            value = match.group(2).strip()
            config.setdefault(match.group(1), "" if value == "(null)" else value)
    return config
