"""The task engine of an emulated BMC: what takes time ends by the clock, well or badly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slurm_lifecycle.sandbox.bmc.faults import Faults
from slurm_lifecycle.sandbox.bmc.http import Reply

TASKS = "/redfish/v1/TaskService/Tasks"


@dataclass(slots=True)
class Task:
    """One task.

    Attributes:
        what: for people. finish: called once when it ends well.
    """

    number: int
    what: str
    began: float
    takes_s: float
    finish: Callable[[], None]
    ended: str = ""


class Tasks:
    """All tasks of a BMC."""

    def __init__(self, faults: Faults, clock: Callable[[], float]) -> None:
        """None yet."""
        self._faults = faults
        self._clock = clock
        self._all: dict[int, Task] = {}

    def begin(self, what: str, takes_s: float, finish: Callable[[], None] = lambda: None) -> Reply:
        """Begin one: 202 with its place in `Location` and itself as the body."""
        task = Task(len(self._all) + 1, what, self._clock(), takes_s, finish)
        self._all[task.number] = task
        return Reply(202, self._render(task), {"Location": f"{TASKS}/{task.number}"})

    def members(self) -> list[str]:
        """Paths of those that can be seen."""
        return [] if self._faults.has("vanished-task") else [f"{TASKS}/{number}" for number in self._all]

    def show(self, number: str) -> Reply:
        """One task."""
        task = self._all.get(int(number)) if number.isdigit() else None
        if task is None or self._faults.has("vanished-task"):
            return Reply(404, {"error": {"code": "Base.1.0.ResourceMissingAtURI"}})
        return Reply(200, self._render(task))

    def settle(self) -> None:
        """Let everything that is due end, whether or not somebody looks at it."""
        for task in self._all.values():
            self._state(task)

    def _state(self, task: Task) -> tuple[str, str]:
        age = self._clock() - task.began
        if task.ended:
            return task.ended, "Critical" if self._faults.has("task-critical") else "OK"
        if age < 0.1 * task.takes_s:
            return "New", "OK"
        if age < task.takes_s or self._faults.has("stuck-task"):
            return "Running", "OK"
        if self._faults.has("task-exception"):
            task.ended = "Exception"
            return "Exception", "OK"
        task.ended = "Completed"
        task.finish()
        return self._state(task)

    def _render(self, task: Task) -> dict[str, Any]:
        state, status = self._state(task)
        shown: dict[str, Any] = {
            "@odata.id": f"{TASKS}/{task.number}",
            "@odata.type": "#Task.v1_7_0.Task",
            "Id": str(task.number),
            "Name": task.what,
            "TaskState": state,
            "TaskStatus": status,
            "Messages": [],
        }
        if state == "Exception":
            text = "IPMI command returned success but power state of chassis did not change"
            shown["Messages"] = [{"MessageId": "Base.1.0.GeneralError", "Message": text}]
        if state not in ("New", "Exception"):
            share = (self._clock() - task.began) / task.takes_s if task.takes_s else 1.0
            shown["PercentComplete"] = 100 if state == "Completed" else min(99, int(100 * share))
        return shown
