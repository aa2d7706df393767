"""Daemons that are broken where they switch machines off and on; part of `tests.simulation.mutants`."""

from collections.abc import Callable, Mapping
from typing import Any

from slurm_lifecycle.core import invariants, power_sequence, stepwise
from slurm_lifecycle.core.draft import Draft
from slurm_lifecycle.core.machine import MachineCommand
from slurm_lifecycle.core.model import AttemptOutcome
from slurm_lifecycle.core.sequence_record import End, Wait
from slurm_lifecycle.service import executor

Put = Mapping[tuple[Any, str], Any]


def _never_on() -> Put:
    again = power_sequence._again

    def only_others(now: Any, seen: Any, command: MachineCommand) -> Any:
        return Wait("not today") if command is MachineCommand.ON else again(now, seen, command)

    def over(now: Any, seen: Any) -> Any:
        return End(AttemptOutcome.AMBIGUOUS, "off") if now.now >= now.deadline else real(now, seen)

    real = power_sequence._while_off
    return {(power_sequence, "_again"): only_others, (power_sequence, "_while_off"): over}


def _no_look() -> Put:
    return {
        (stepwise, "_may_not"): lambda draft, attempt, view: "",
        (invariants, "_check_disruption"): lambda fleet, on_record, action, policy: (),
        (executor.Executor, "_look_at"): lambda self, attempt, fence: None,
    }


def _not_written() -> Put:
    """The commands are sent and not written down."""

    def put_step(self: Any, step: Any) -> None:
        self.steps.setdefault(step.op_id, []).append(step)

    def check(*args: Any) -> tuple[str, ...]:
        return ()

    return {(Draft, "put_step"): put_step, (invariants, "_check_step"): check}


POWER: tuple[tuple[str, str, Callable[[], Put], int, str], ...] = (
    ("never on", "what was switched off stays off", _never_on, 14, "power that is taken is given back"),
    ("no look", "power is taken without a look at the node", _no_look, 0, "a fresh look before each write"),
    (
        "commands unwritten",
        "commands are sent and not written down",
        _not_written,
        0,
        "written before it is done",
    ),
)
