"""Lets a job go that our own prolog refused: Slurm requeues it held, though nothing is wrong with it.

A batch job whose prolog fails is held as `launch failed requeued held` until somebody releases it (measured
on 22.05 to 26.05). Only a job that our prolog wrote down, that Slurm holds for that very reason, and whose
refusing node is drained by now is released; a job that a person holds shows another reason and stays.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import Generator, List, Optional, Sequence, Tuple

from slurm_lifecycle.node.child import Outcome, Result
from slurm_lifecycle.node.slurm_node import NodeRecord, UnknownNodeError, parse_node

HELD_FOR_OUR_REFUSAL = frozenset({"launch failed requeued held", "launch_failed_requeued_held"})
# Slurm needs seconds to clean the job up before it shows as held; after ten minutes it is somebody else's.
LOOK_FROM_S, LOOK_UNTIL_S = 3.0, 600.0
_PREFIX = "refused."
# Machine fields alone: job id, array's id, task id, state, Slurm's own reason.
_FORMAT = "%A|%F|%K|%T|%r"
_OVER = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL")


class Release(Enum):
    """RELEASED and LEFT settle the job; LATER means look again."""

    RELEASED = "released"
    LEFT = "left"
    LATER = "later"


ReleaseSession = Generator[Sequence[str], Result, Release]


def refused_jobs(run_dir: str, now_s: float) -> Tuple[str, ...]:
    """Raw ids of the jobs that our prolog refused and that are of an age to be looked at, oldest first.

    Args:
        run_dir: the agent's run directory.
        now_s: seconds since the epoch.
    """
    found: List[Tuple[float, str]] = []
    try:
        with os.scandir(run_dir) as entries:
            for entry in entries:
                job_id = entry.name[len(_PREFIX) :]
                if entry.name.startswith(_PREFIX) and re.fullmatch(r"[1-9][0-9]{0,9}", job_id):
                    age_s = now_s - entry.stat(follow_symlinks=False).st_mtime
                    if LOOK_FROM_S <= age_s <= LOOK_UNTIL_S:
                        found.append((-age_s, job_id))
    except OSError:
        return ()
    return tuple(job_id for _, job_id in sorted(found))


def release(scontrol: str, node: str, job_id: str) -> ReleaseSession:
    """Look at the node, then at the job, and release it where both allow.

    Args:
        scontrol: the command; squeue is taken from the same place.
        node: this node's name in Slurm.
        job_id: raw id of the refused job.
    """
    answer = yield [scontrol, "-o", "show", "node", node]
    record = _record(answer, node)
    if record is None or "DRAIN" not in record.state:
        # It would be started here again.
        return Release.LATER
    squeue = os.path.join(os.path.dirname(scontrol), "squeue")
    listed = yield [
        squeue,
        "--noheader",
        "--local",
        "--states=all",
        f"--jobs={job_id}",
        f"--format={_FORMAT}",
    ]
    if listed.outcome is not Outcome.DONE:
        # Slurm forgets finished jobs, and then says `Invalid job id specified`.
        return Release.LEFT if "Invalid job id" in listed.error else Release.LATER
    rows = [line.split("|") for line in listed.output.splitlines()]
    mine = [row for row in rows if len(row) == 5 and row[0] == job_id]
    if len(mine) != 1:
        return Release.LATER if not mine else Release.LEFT
    _, array_id, task_id, state, reason = mine[0]
    if state != "PENDING":
        return Release.LEFT if state in ("RUNNING", *_OVER) else Release.LATER
    if reason not in HELD_FOR_OUR_REFUSAL:
        return Release.LEFT
    target = f"{array_id}_{task_id}" if task_id.isdigit() else job_id
    done = yield [scontrol, "release", target]
    return Release.RELEASED if done.outcome is Outcome.DONE else Release.LATER


def _record(answer: Result, node: str) -> Optional[NodeRecord]:
    if answer.outcome is not Outcome.DONE:
        return None
    try:
        return parse_node(answer.output, node)
    except (ValueError, UnknownNodeError):
        return None
