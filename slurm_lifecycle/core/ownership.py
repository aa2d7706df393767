"""What a node's state tokens and reason mean: who drained it, is it drained, may it be touched at all.

Slurm has one base state and flag bits. "Drained" is not a state: it is DRAIN and none of the busy tokens,
and no job that lists the node (a suspended job's node shows IDLE+DRAIN).
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from slurm_lifecycle.core.formats import is_our_reason
from slurm_lifecycle.core.model import JobView, NodeView, Owner
from slurm_lifecycle.core.policy import Policy

BUSY_TOKENS = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
REBOOT_TOKENS = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED"})
MAINTENANCE_TOKENS = frozenset({"MAINTENANCE", "RESERVED"})

# Tokens under which a decision can be made. Any other one (UNKNOWN, FUTURE, ERROR, power saving, FAIL,
# REBOOT_CANCELED, a token of a newer release) means: no action.
UNDERSTOOD_TOKENS = (
    frozenset(
        {
            "DOWN",
            "IDLE",
            "DRAIN",
            "NOT_RESPONDING",
            "PLANNED",
            "INVALID_REG",
            "CLOUD",
            "DYNAMIC_NORM",
            "BLOCKED",
            "EXTERNAL",
        }
    )
    | BUSY_TOKENS
    | REBOOT_TOKENS
    | MAINTENANCE_TOKENS
)

# Tokens that make a node unavailable to jobs, for whatever reason.
OUT_TOKENS = frozenset({"DRAIN", "DOWN", "NOT_RESPONDING", "FAIL", "INVALID_REG"}) | REBOOT_TOKENS
# Under these alone, at least one of them, a node is understood, not out, and nobody's.
IN_SERVICE_TOKENS = UNDERSTOOD_TOKENS - OUT_TOKENS
_OWNED_TOKENS = frozenset({"DRAIN", "DOWN", "FAIL"})

# What Slurm itself appends with " : "; any other tail is somebody's own words.
_SUFFIXES = frozenset(
    {
        "reboot issued",
        "reboot requested",
        "reboot timed out",
        "reboot complete",
        "Not responding",
    }
)

_SLURM_REASONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"Not responding", "NO_RESPONSE"),
        (r"Node unexpectedly rebooted", "SELF_REBOOT"),
        (r"ResumeTimeout reached", "BOOT_TIMEOUT"),
        (r"reboot timed out", "BOOT_TIMEOUT"),
        # 25.05 and newer append the job: `Kill task failed (JobId=N StepId=M)`.
        (r"Kill task failed(?: \([A-Za-z0-9=+._ ]*\))?", "KILL_TASK"),
        (r"Prolog error", "PROLOG"),
        (r"Epilog error", "EPILOG"),
        (r"Prolog/Epilog failure", "PROLOG"),
        (r"Duplicate jobid", "LAUNCH"),
        (r"batch job complete failure", "LAUNCH"),
        (r"Job env setup error", "LAUNCH"),
        (r"Low (?:RealMemory|CPUs|TmpDisk|socket\*core\*thread count)[^:]*(?::[^:]*)?", "LOW_RESOURCE"),
        (r"gres/\S+ count reported lower than configured \(\d+ < \d+\)", "LOW_RESOURCE"),
    )
)


# The one token of a node whose record could not be read: its texts are then not known to be empty.
UNREADABLE = "UNREADABLE"


def claim_bearer(nodes: Mapping[str, NodeView]) -> NodeView | None:
    """The node whose Comment bears the daemon's claim: the first by name of those that can be read."""
    first = min(nodes, default=None)
    if first is not None and UNREADABLE in nodes[first].state:
        first = min((name for name, view in nodes.items() if UNREADABLE not in view.state), default=None)
    return None if first is None else nodes[first]


def understood(view: NodeView) -> bool:
    """Whether every token is one that decisions can be based on."""
    return bool(view.state) and view.state <= UNDERSTOOD_TOKENS


def reboot_under_way(view: NodeView) -> bool:
    """Whether Slurm waits for a node to boot.

    A node that comes back with a GPU less than configured has registered, which INVALID_REG says, and bears
    REBOOT_ISSUED until it registers with all of them (measured on 22.05): that boot is over.
    """
    return not view.state.isdisjoint(REBOOT_TOKENS) and "INVALID_REG" not in view.state


def is_out(view: NodeView) -> bool:
    """Whether the node is unavailable to jobs, for whatever reason; counts against `max_out`."""
    return not view.state.isdisjoint(OUT_TOKENS)


def jobs_by_node(jobs: Iterable[JobView], names: Iterable[str]) -> dict[str, list[JobView]]:
    """The jobs that list each of the nodes, in one pass over all jobs."""
    wanted = frozenset(names)
    found: dict[str, list[JobView]] = {name: [] for name in wanted}
    for job in jobs:
        if not wanted.isdisjoint(job.nodes):
            for name in wanted.intersection(job.nodes):
                found[name].append(job)
    return found


def is_drained(view: NodeView, jobs: Iterable[JobView]) -> bool:
    """DRAIN, nothing busy, every token understood, and no job in a non-terminal state lists the node.

    Where the node's and the jobs' reads disagree, it is busy.
    """
    return (
        understood(view)
        and "DRAIN" in view.state
        and not view.state & BUSY_TOKENS
        and not any(view.name in job.nodes for job in jobs)
    )


@lru_cache(maxsize=4096)
def slurm_reason_code(reason: str) -> str:
    """Our code for one of Slurm's own reasons, "" where the reason is not Slurm's own.

    Exact texts only: an administrator's `Low on coolant` must not be taken for `Low RealMemory ...`.
    """
    head, *tail = reason.split(" : ")
    if any(part not in _SUFFIXES for part in tail):
        return ""
    for pattern, code in _SLURM_REASONS:
        if pattern.fullmatch(head):
            return code
    return ""


def owner_of(view: NodeView, policy: Policy) -> Owner:
    """Whose drain (or DOWN) it is.

    The text alone can be stale on a node in service (24.11 and 25.11 keep it without accounting), so a
    node that is neither DRAIN nor DOWN has no owner. A drain without a reason is a person's.
    """
    if view.state.isdisjoint(_OWNED_TOKENS):
        return Owner.NOBODY
    if is_our_reason(view.reason):
        return Owner.OURS
    if slurm_reason_code(view.reason):
        return Owner.SLURM
    if any(view.reason.startswith(prefix) for prefix in policy.adopt_tools if prefix):
        return Owner.TOOL
    return Owner.PERSON
