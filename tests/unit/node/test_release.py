"""Which refused jobs are let go: only held for that very refusal, only from a node that is out."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_lifecycle.node.child import Outcome, Result
from slurm_lifecycle.node.release import Release, refused_jobs, release

NODE = (
    "NodeName=n1 Arch=x86_64 State={state} ThreadsPerCore=1 CfgTRES=cpu=1 AllocTRES=\n   Reason=x [root@t]\n"
)
HELD = "launch failed requeued held"


def play(state: str, jobs: str, squeue_error: str = "", code: int = 0) -> tuple[Release, list[Sequence[str]]]:
    """The session with what Slurm answers; returns how it ended and the commands that it ran."""
    session = release("/opt/slurm/bin/scontrol", "n1", "41")
    commands: list[Sequence[str]] = []
    answer: Result | None = None
    while True:
        try:
            command = next(session) if answer is None else session.send(answer)
        except StopIteration as end:
            return end.value, commands
        commands.append(command)
        if "show" in command:
            answer = Result(Outcome.DONE, NODE.format(state=state), code=0)
        elif command[0].endswith("squeue"):
            outcome = Outcome.FAILED if squeue_error else Outcome.DONE
            answer = Result(outcome, jobs, squeue_error, 1 if squeue_error else 0)
        else:
            answer = Result(Outcome.DONE if code == 0 else Outcome.FAILED, code=code)


def test_held_job_of_a_drained_node_is_released() -> None:
    ended, commands = play("IDLE+DRAIN", f"41|41|N/A|PENDING|{HELD}\n")
    assert ended is Release.RELEASED
    assert commands[1][0] == "/opt/slurm/bin/squeue"
    assert commands[-1] == ["/opt/slurm/bin/scontrol", "release", "41"]


def test_task_of_an_array_is_released_alone() -> None:
    ended, commands = play("IDLE+DRAIN", f"41|40|7|PENDING|{HELD}\n40|40|9|PENDING|JobHeldUser\n")
    assert ended is Release.RELEASED
    assert commands[-1][-1] == "40_7"


@pytest.mark.parametrize(
    ("state", "jobs", "error", "expected"),
    [
        ("IDLE", f"41|41|N/A|PENDING|{HELD}\n", "", Release.LATER),
        ("IDLE+DRAIN", "41|41|N/A|PENDING|JobHeldUser\n", "", Release.LEFT),
        ("IDLE+DRAIN", "41|41|N/A|PENDING|JobHeldAdmin\n", "", Release.LEFT),
        ("IDLE+DRAIN", "41|41|N/A|PENDING|BeginTime\n", "", Release.LEFT),
        ("IDLE+DRAIN", "41|41|N/A|RUNNING|None\n", "", Release.LEFT),
        ("IDLE+DRAIN", "41|41|N/A|COMPLETING|None\n", "", Release.LATER),
        ("IDLE+DRAIN", "", "", Release.LATER),
        ("IDLE+DRAIN", "garbage\n", "", Release.LATER),
        ("IDLE+DRAIN", "", "slurm_load_jobs error: Invalid job id specified", Release.LEFT),
        ("IDLE+DRAIN", "", "Unable to contact slurm controller", Release.LATER),
    ],
)
def test_everything_else_is_left_alone(state: str, jobs: str, error: str, expected: Release) -> None:
    ended, commands = play(state, jobs, error)
    assert ended is expected
    assert not any("release" in command for command in commands)


def test_release_that_fails_is_tried_again() -> None:
    ended, _ = play("IDLE+DRAIN", f"41|41|N/A|PENDING|{HELD}\n", code=1)
    assert ended is Release.LATER


def test_only_notes_of_the_right_age_and_name_count(tmp_path: Path) -> None:
    now = time.time()
    ages = (("41", 10), ("42", 1), ("43", 5000), ("44", 30), ("0x", 10), ("", 10), ("-1", 10))
    for name, age_s in ages:
        path = tmp_path / f"refused.{name}"
        path.touch()
        os.utime(path, (now - age_s, now - age_s))
    assert refused_jobs(str(tmp_path), now) == ("44", "41")
    assert refused_jobs(str(tmp_path / "missing"), now) == ()
