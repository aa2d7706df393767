"""Carries a plan's actions out, each once, each after a fresh look at what it touches.

Slurm has no compare-and-set: the node is read right before a write, and whatever changed since the plan was
made stops the action. What came of it is read by the next tick; only what was surely never sent, or refused,
is ended here.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_lifecycle.core.draft import FENCE_PREFIX
from slurm_lifecycle.core.evidence import IDEMPOTENT_RUNGS
from slurm_lifecycle.core.fault_catalog import fault_for
from slurm_lifecycle.core.formats import tells_of_a_reboot
from slurm_lifecycle.core.ladder import TICKET_RUNGS
from slurm_lifecycle.core.machine import RESTORING, MachineCommand, StepOutcome
from slurm_lifecycle.core.model import Attempt, AttemptOutcome, Incident, NodeView, Owner, Rung
from slurm_lifecycle.core.ownership import UNREADABLE, is_drained, owner_of, reboot_under_way, understood
from slurm_lifecycle.core.plan import (
    AbortImage,
    Action,
    CreateFence,
    Drain,
    Notice,
    Plan,
    RemoveFence,
    RenewFence,
    SendStep,
    SetComment,
    StartAttempt,
    Undrain,
)
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.errors import (
    AmbiguousOutcome,
    BackendError,
    InvariantViolation,
    LifecycleError,
    PermanentError,
    TransientError,
)
from slurm_lifecycle.ports import (
    Bmc,
    Clock,
    NodeCommand,
    Notifier,
    Provisioner,
    Sent,
    Slurm,
    Store,
    TicketFacts,
    Tickets,
)

REPORT_PATH = "/run/slurm-lifecycle/report.json"
_REPORT_TIMEOUT_S = 10.0
_REPORT_MAX_CHARS = 1 << 20
_REPORT_MAX_DEPTH = 16
_SITE_SHARE_S = 30.0
# Two answers of a BMC that takes 20 s for each (seen on DGX H100): its serial number, then the command.
_SEND_DEADLINE_S = 60.0
_LOG = logging.getLogger("slurm_lifecycle.executor")


def _asks_the_site(action: Action) -> bool:
    site = isinstance(action, StartAttempt) and action.attempt.rung in IDEMPOTENT_RUNGS
    return site or isinstance(action, Notice | AbortImage)


def _deeper_than(value: object, limit: int) -> bool:
    """Whether lists and objects stand in each other deeper than that; what is printed of them recurses."""
    level: list[object] = [value]
    for _ in range(limit):
        inner: list[object] = []
        for one in level:
            inner += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        level = inner
    return any(isinstance(one, dict | list) for one in level)


class Skipped(Exception):
    """Not an error: the world moved on since the plan was made; the next tick plans anew."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one action: `done`, `skipped`, `refused`, `failed` or `ambiguous`."""

    action: Action
    result: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the executor acts through."""

    slurm: Slurm
    store: Store
    clock: Clock
    provisioner: Provisioner
    bmc: Bmc
    node_command: NodeCommand
    tickets: Tickets
    notifier: Notifier
    history: Callable[[str], tuple[str, ...]]


class Executor:
    """Carries out plans. Holds no state of its own: a daemon killed between two actions loses nothing."""

    def __init__(self, ports: Ports, policy: Policy) -> None:
        self._ports = ports
        self._policy = policy

    def execute(self, plan: Plan, incidents: Mapping[str, Incident]) -> tuple[Done, ...]:
        """Carry out every action in order, those that wait for a site's own commands last.

        Such a command may hang for its whole timeout, for each of many nodes: once they took their time in
        this tick, what is left of them is sent by the next one, as after a daemon that died.

        Args:
            plan: checked and stored.
            incidents: open incidents by node, as the plan leaves them.
        """
        began = self._ports.clock.now()
        done = []
        steps = [one for one in plan.actions if isinstance(one, SendStep)]
        others = [one for one in plan.actions if not isinstance(one, SendStep)]
        for action in sorted(others, key=_asks_the_site):
            late = self._ports.clock.now() - began > _SITE_SHARE_S
            if late and isinstance(action, StartAttempt) and _asks_the_site(action):
                done.append(Done(action, "skipped", "this tick spent its time on the site's commands"))
            else:
                done.append(self._one(action, incidents))
        done += self._steps(steps)
        for notice in plan.standing:
            self._ports.notifier.notify(notice)
        return tuple(done)

    def _one(self, action: Action, incidents: Mapping[str, Incident]) -> Done:
        try:
            self._act(action, incidents)
        except Skipped as why:
            return Done(action, "skipped", str(why))
        except AmbiguousOutcome as error:
            return Done(action, "ambiguous", str(error))
        except PermanentError as error:
            return Done(action, "refused", str(error))
        except BackendError as error:
            return Done(action, "failed", str(error))
        except (LifecycleError, InvariantViolation):
            # The store's: without it nothing more may be done.
            raise
        except Exception as error:
            # A defect, or a text from outside that nobody thought of, costs its own node, not those after it.
            _LOG.exception("%s failed by a defect", type(action).__name__)
            return Done(action, "failed", f"by a defect: {type(error).__name__}: {error}")
        return Done(action, "done")

    def _act(self, action: Action, incidents: Mapping[str, Incident]) -> None:
        if isinstance(action, Drain):
            self._drain(action)
        elif isinstance(action, SetComment):
            self._set_comment(action)
        elif isinstance(action, CreateFence):
            self._ports.slurm.create_fence(action.name, action.node)
        elif isinstance(action, RenewFence):
            self._ports.slurm.renew_fence(action.name, action.end_s)
        elif isinstance(action, RemoveFence):
            self._remove_fence(action)
        elif isinstance(action, Undrain):
            self._undrain(action)
        elif isinstance(action, StartAttempt):
            self._start(action, incidents)
        elif isinstance(action, AbortImage):
            self._ports.provisioner.abort(action.op_id, action.node)
        else:
            assert isinstance(action, Notice)
            self._ports.notifier.notify(action)

    # ------------------------------------------------------------ convergent and releasing

    def _fresh(self, node: str) -> NodeView:
        view = self._ports.slurm.node(node)
        if not understood(view):
            raise Skipped(f"{node} is in state {'+'.join(sorted(view.state))} now")
        return view

    def _drain(self, action: Drain) -> None:
        view = self._fresh(action.node)
        owner = owner_of(view, self._policy)
        if owner is Owner.PERSON:
            raise Skipped(f"{action.node} was drained by a person meanwhile: {view.reason[:80]!r}")
        if owner is Owner.OURS and "DRAIN" in view.state and not tells_of_a_reboot(view.reason):
            raise Skipped(f"{action.node} is drained by us already")
        self._ports.slurm.drain(action.node, action.reason)

    def _set_comment(self, action: SetComment) -> None:
        view = self._ports.slurm.node(action.node)
        if UNREADABLE in view.state:
            raise Skipped(f"the record of {action.node} cannot be read now, nor can its Comment")
        if view.comment != action.expected:
            raise Skipped(f"the Comment of {action.node} was changed meanwhile")
        self._ports.slurm.set_comment(action.node, action.comment)

    def _undrain(self, action: Undrain) -> None:
        view = self._fresh(action.node)
        if owner_of(view, self._policy) is not Owner.OURS:
            raise Skipped(f"the drain of {action.node} is not ours any more: {view.reason[:80]!r}")
        if reboot_under_way(view):
            # Slurm would put it into service in the middle of it (measured).
            raise Skipped(f"a reboot of {action.node} has begun meanwhile")
        if "DOWN" in view.state:
            self._ports.slurm.resume(action.node)
        else:
            self._ports.slurm.undrain(action.node)

    def _remove_fence(self, action: RemoveFence) -> None:
        if not action.name.startswith(FENCE_PREFIX):
            raise Skipped(f"reservation {action.name} is not one of ours")
        # A node that was taken out of Slurm must not keep its fence for ever.
        with contextlib.suppress(PermanentError):
            self._ports.slurm.node(action.node)
        self._ports.slurm.remove_fence(action.name)

    # ------------------------------------------------------------ one-shot

    def _start(self, action: StartAttempt, incidents: Mapping[str, Incident]) -> None:
        attempt = action.attempt
        if attempt.rung in TICKET_RUNGS:
            self._write_ticket(attempt, incidents.get(attempt.node))
            return
        try:
            self._look_at(attempt, action.fence)
            self._send(attempt)
        except (Skipped, TransientError) as error:
            if action.again:
                # The earlier try may be at work and be the very reason for what was seen.
                raise
            # Surely nothing was sent: the look failed, or the call says so itself.
            self._end(attempt, AttemptOutcome.CANCELLED, str(error))
            raise
        except PermanentError as error:
            self._end(attempt, AttemptOutcome.FAILED, str(error))
            raise
        except AmbiguousOutcome:
            self._ports.store.mark_sent(attempt.op_id)
            raise
        self._ports.store.mark_sent(attempt.op_id)

    def _end(self, attempt: Attempt, outcome: AttemptOutcome, detail: str) -> None:
        self._ports.store.resolve(attempt.op_id, outcome, detail, self._ports.clock.now())

    def _look_at(self, attempt: Attempt, fence: str) -> None:
        """The last look before something disruptive: drained by both reads, ours, fenced, responding."""
        reservation = self._ports.slurm.reservations().get(fence)
        if reservation is None or attempt.node not in reservation.nodes:
            raise Skipped(f"fence {fence or '(none)'} does not stand over {attempt.node}")
        view = self._fresh(attempt.node)
        jobs = self._ports.slurm.jobs_on(attempt.node)
        if not is_drained(view, jobs):
            raise Skipped(
                f"{attempt.node} is not drained now ({'+'.join(sorted(view.state))}, {len(jobs)} jobs)"
            )
        if owner_of(view, self._policy) is not Owner.OURS:
            raise Skipped(f"the drain of {attempt.node} is not ours any more: {view.reason[:80]!r}")
        if attempt.rung is Rung.REBOOT and view.state & {"NOT_RESPONDING", "DOWN"}:
            raise Skipped(f"{attempt.node} does not respond now")

    # ------------------------------------------------------------ step by step

    def _steps(self, actions: Sequence[SendStep]) -> list[Done]:
        """Send the commands to BMCs, all at once and each after its own look; then write down what came.

        A daemon that dies in between leaves a command without an outcome, which counts as maybe sent.
        """
        done, cleared = [], []
        for action in actions:
            sent = self._may_send(action)
            if sent is None:
                cleared.append(action)
            else:
                done.append(self._end_step(action, sent))
        commands = {one.node: one.step.command for one in cleared}
        answers = self._ports.bmc.send(commands, _SEND_DEADLINE_S) if commands else {}
        nothing = Sent(StepOutcome.AMBIGUOUS, "no answer on record")
        return done + [self._end_step(one, answers.get(one.node, nothing)) for one in cleared]

    def _may_send(self, action: SendStep) -> Sent | None:
        """Why a command is not sent to a BMC, or what came of the one that is for the provisioner."""
        command = action.step.command
        if command in RESTORING:
            return None
        try:
            self._look_at(action.attempt, action.fence)
            if command is not MachineCommand.STAGE:
                return None
            self._ports.provisioner.start(action.node, self._policy.image, action.attempt.op_id)
        except (Skipped, TransientError) as error:
            return Sent(StepOutcome.REFUSED, f"not sent: {error}")
        except PermanentError as error:
            return Sent(StepOutcome.UNSUPPORTED, str(error))
        except AmbiguousOutcome as error:
            return Sent(StepOutcome.AMBIGUOUS, str(error))
        except (LifecycleError, InvariantViolation):
            raise
        except Exception as error:
            _LOG.exception("%s of %s failed by a defect", command.value, action.node)
            return Sent(StepOutcome.AMBIGUOUS, f"by a defect: {type(error).__name__}: {error}")
        return Sent(StepOutcome.ACCEPTED)

    def _end_step(self, action: SendStep, sent: Sent) -> Done:
        store, step = self._ports.store, action.step
        store.end_step(step.op_id, step.n, sent.outcome, sent.detail, self._ports.clock.now())
        may_be = sent.outcome in (StepOutcome.ACCEPTED, StepOutcome.AMBIGUOUS)
        if may_be and not action.attempt.sent:
            store.mark_sent(action.attempt.op_id)
        results = {StepOutcome.ACCEPTED: "done", StepOutcome.AMBIGUOUS: "ambiguous"}
        return Done(action, results.get(sent.outcome, "refused"), sent.detail)

    # ------------------------------------------------------------ at once

    def _send(self, attempt: Attempt) -> None:
        if attempt.rung is Rung.REBOOT:
            self._ports.slurm.reboot(attempt.node)
        elif attempt.rung is Rung.REIMAGE:
            self._ports.provisioner.start(attempt.node, self._policy.image, attempt.op_id)
        else:
            raise PermanentError(
                f"{attempt.rung.value} {attempt.node}", "this installation has no such effect"
            )

    def _write_ticket(self, attempt: Attempt, incident: Incident | None) -> None:
        report, problem = self._node_report(attempt.node)
        facts = TicketFacts(
            op_id=attempt.op_id,
            node=attempt.node,
            code=incident.code if incident else "",
            component=incident.component if incident else "",
            text=fault_for(incident.code).text if incident else "",
            opened_at=incident.opened_at if incident else attempt.created_at,
            now=self._ports.clock.now(),
            history=self._ports.history(attempt.incident_id),
            report=report,
            report_error=problem,
        )
        try:
            where = self._ports.tickets.write(facts)
        except BackendError as error:
            self._end(attempt, AttemptOutcome.CANCELLED, str(error))
            raise
        self._end(attempt, AttemptOutcome.SUCCEEDED, where)

    def _node_report(self, node: str) -> tuple[Mapping[str, object] | None, str]:
        """The node's own account, for the ticket; a node that cannot be asked does not stop the ticket."""
        try:
            result = self._ports.node_command.run(node, ("cat", REPORT_PATH), _REPORT_TIMEOUT_S)
        except BackendError as error:
            return None, str(error)
        if result.code != 0:
            return None, f"reading {REPORT_PATH} ended with {result.code}: {result.stderr[:120]}"
        try:
            parsed = json.loads(result.stdout[:_REPORT_MAX_CHARS])
        except (ValueError, RecursionError):
            return None, f"{REPORT_PATH} is not JSON"
        if _deeper_than(parsed, _REPORT_MAX_DEPTH):
            return None, f"{REPORT_PATH} is nested too deeply"
        return (parsed, "") if isinstance(parsed, dict) else (None, f"{REPORT_PATH} is not an object")
