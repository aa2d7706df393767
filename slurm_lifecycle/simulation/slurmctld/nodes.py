"""Nodes: what administrators set, what slurmd registers, what pings find."""

from collections.abc import Callable

from slurm_lifecycle.simulation.slurmctld.jobs import Jobs
from slurm_lifecycle.simulation.slurmctld.reboots import Reboots
from slurm_lifecycle.simulation.slurmctld.records import (
    ALLOCATED,
    DOWN,
    DRAIN,
    FAIL,
    INVALID_REG,
    MAINTENANCE,
    NOT_RESPONDING,
    REBOOT_ISSUED,
    REBOOT_REQUESTED,
    UNKNOWN,
    Node,
)
from slurm_lifecycle.simulation.slurmctld.settings import SlurmRefused
from slurm_lifecycle.simulation.slurmctld.state import State

NOT_RESPONDING_REASON = "Not responding"
REBOOTED_REASON = "Node unexpectedly rebooted"
# After UNDRAIN and RESUME a node shows NOT_RESPONDING for so long (measured).
_ANSWERS_S = (0.5, 1.2)
# A node that is down although it answers is found at a ping; measured: 3 to 8 s where pings go out every 4 s.
_PING_FOUND_S = 3.0
# A ping to a dead host is given up after so long (MessageTimeout).
_PING_LOST_S = 10.0
# Seen in the sources: such a node may fall silent and never go down.
_NOT_PINGED = REBOOT_ISSUED | INVALID_REG
_NEEDS_REASON = frozenset({"DRAIN", "DOWN", "FAIL"})
_INVALID_STATE = "Invalid node state specified"


class Nodes:
    """The node part."""

    def __init__(self, state: State, jobs: Jobs, reboots: Reboots) -> None:
        self._state = state
        self._jobs = jobs
        self._reboots = reboots
        jobs.freed = reboots.consider
        self._verbs: dict[str, Callable[[Node, str], None]] = {
            "DRAIN": self._drain,
            "DOWN": self._down,
            "FAIL": self._fail,
            "UNDRAIN": self._undrain,
            "RESUME": self._resume,
            "IDLE": self._idle,
        }

    # ------------------------------------------------------------ scontrol update

    def update(self, names: str, verb: str, reason: str) -> None:
        """`scontrol update NodeName= State=`.

        A list is not atomic: those that may be changed are changed, and the exit status is 1 (measured).
        """
        act = self._verbs.get(verb.upper())
        if act is None:
            raise SlurmRefused(_INVALID_STATE)
        if verb.upper() in _NEEDS_REASON and not reason.strip():
            raise SlurmRefused("You must specify a reason when DOWNING or DRAINING a node. Request denied")
        refused: SlurmRefused | None = None
        for name in self._named(names):
            try:
                node = self._state.node(name)
                act(node, reason)
                self._reboots.state_updated(node)
            except SlurmRefused as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _named(self, names: str) -> list[str]:
        return list(self._state.nodes) if names == "ALL" else names.split(",")

    def _drain(self, node: Node, reason: str) -> None:
        if node.flags & DRAIN and node.reason == reason:
            return
        self._state.set_reason(node, reason)
        node.flags = node.flags & ~FAIL | DRAIN
        self._state.node_changed(node)

    def _fail(self, node: Node, reason: str) -> None:
        self._state.set_reason(node, reason)
        node.flags = node.flags & ~DRAIN | FAIL
        self._state.node_changed(node)

    def _down(self, node: Node, reason: str) -> None:
        self._state.set_reason(node, reason)
        node.flags |= DOWN
        node.stop("down")
        lost = self._jobs.detach(node)
        self._state.node_changed(node)
        self._jobs.lost_node(lost)
        self._found_alive(node)
        self._reboots.consider(node)

    def _undrain(self, node: Node, _reason: str) -> None:
        if node.flags & INVALID_REG:
            raise SlurmRefused(_INVALID_STATE)
        node.flags &= ~DRAIN
        self._state.forget_reason(node)
        self._asked_to_register(node)

    def _resume(self, node: Node, _reason: str) -> None:
        resumable = node.flags & (DOWN | DRAIN | FAIL | REBOOT_REQUESTED)
        if node.flags & INVALID_REG or not resumable:
            raise SlurmRefused(_INVALID_STATE)
        was_out = bool(node.flags & (DOWN | DRAIN))
        self._reboots.abandon(node)
        node.flags &= ~(DOWN | DRAIN | FAIL)
        self._state.forget_reason(node)
        if was_out:
            self._asked_to_register(node)
        else:
            self._state.node_changed(node)

    def _idle(self, node: Node, _reason: str) -> None:
        """`State=IDLE`; in the middle of a reboot older releases take it and never find out (measured)."""
        issued = bool(node.flags & REBOOT_ISSUED)
        if node.flags & (INVALID_REG | ALLOCATED) or (issued and not self._state.release.idle_while_issued):
            raise SlurmRefused(_INVALID_STATE)
        node.flags &= ~(DOWN | DRAIN | FAIL)
        self._state.forget_reason(node)
        if issued:
            node.flags |= NOT_RESPONDING
        elif node.silent_since is not None:
            self._watch(node)
        self._state.node_changed(node)

    def set_reason(self, names: str, reason: str) -> None:
        """`Reason=` alone; on a node in service most releases forget it at once (measured)."""
        for name in self._named(names):
            node = self._state.node(name)
            self._state.set_reason(node, reason)
            self._state.forget_reason(node)
            self._state.node_changed(node)

    # ------------------------------------------------------------ slurmd

    def registered(self, node: Node, boot_time_s: float, gpus: int) -> None:
        """slurmd started, or answers again, and says since when its node runs."""
        state = self._state
        rebooted = node.known and boot_time_s > node.boot_time_s
        answered_at = max(node.silent_since or 0.0, node.asked_at)
        node.known = True
        node.silent_since = None
        node.stop("ping", "down", "answer")
        node.boot_time_s = boot_time_s
        node.slurmd_start_s = state.timeline.now
        # Both are kept in full seconds: a boot in the second of the request counts as the one asked for.
        if node.flags & REBOOT_ISSUED and int(boot_time_s) < int(node.boot_req_at):
            # That goes on until ResumeTimeout (measured).
            state.node_changed(node)
            return
        if gpus < node.spec.gpus:
            self._registered_with_less(node, gpus)
        else:
            node.flags &= ~INVALID_REG
            self._take_back(node, unexpected=rebooted and boot_time_s > answered_at)
        lost = self._jobs.detach(node) if rebooted else None
        state.node_changed(node)
        self._jobs.lost_node(lost)
        self._jobs.node_answers(node)
        self._found_alive(node)
        self._reboots.consider(node)

    def _registered_with_less(self, node: Node, gpus: int) -> None:
        """A registration with fewer GPUs than configured is invalid until one with all of them.

        It brings no node back, and a reboot that was asked for is neither over nor timed any more (seen in
        the sources). The caller tells of the change.
        """
        node.flags = node.flags & ~(NOT_RESPONDING | UNKNOWN) | INVALID_REG
        node.boot_req_at = 0.0
        node.stop("reboot")
        text = f"gres/gpu count reported lower than configured ({gpus} < {node.spec.gpus})"
        if not node.flags & (DOWN | DRAIN | FAIL):
            self._state.drain_by_slurm(node, text)
        elif self._state.release.rewrites_at_invalid and node.reason != text:
            self._state.set_reason(node, text)

    def _take_back(self, node: Node, *, unexpected: bool) -> None:
        """What becomes of a node that registers or answers. The caller tells of the change.

        Args:
            node: it.
            unexpected: it booted after it was last heard of, and nobody asked for that.
        """
        state, returns = self._state, self._state.conf.return_to_service
        node.flags &= ~UNKNOWN
        # Compared by equality: a text that something was added to is not taken for it (measured).
        unanswered = node.reason == NOT_RESPONDING_REASON
        in_maintenance = state.release.spares_drained and bool(node.flags & MAINTENANCE)
        spared = in_maintenance or (
            state.release.spares_drained and bool(node.flags & DRAIN) and node.job is None
        )
        if node.flags & REBOOT_ISSUED and not node.flags & DOWN and returns == 2:
            # Somebody set IDLE in the middle of a reboot; nothing clears it (measured).
            return
        node.flags &= ~NOT_RESPONDING
        if node.flags & DOWN:
            asked_for = bool(node.flags & REBOOT_ISSUED)
            silence = returns == 1 and unanswered and (not unexpected or in_maintenance)
            if asked_for or returns == 2 or silence:
                self._reboots.returned(node)
            elif unexpected and unanswered and not in_maintenance:
                state.set_reason(node, REBOOTED_REASON)
        elif unexpected and returns != 2 and not spared:
            cancelled = self._reboots.unexpected(node)
            if not node.reason or unanswered or cancelled:
                state.set_reason(node, REBOOTED_REASON)
            node.flags |= DOWN
            node.boot_req_at = 0.0
            node.stop("reboot")

    def _asked_to_register(self, node: Node) -> None:
        """UNDRAIN and RESUME make slurmctld ask the node, which answers within a second or so (measured)."""
        node.flags |= NOT_RESPONDING
        node.asked_at = self._state.timeline.now
        if node.flags & REBOOT_ISSUED:
            # Its boot will answer.
            pass
        elif node.silent_since is None:
            delay_s = self._state.rng.uniform(*_ANSWERS_S)
            node.stop("answer")
            node.timers["answer"] = self._state.timeline.after(delay_s, lambda: self._answers(node))
        else:
            self._watch(node)
        self._state.node_changed(node)

    def _answers(self, node: Node) -> None:
        node.stop("answer")
        self._take_back(node, unexpected=False)
        self._state.node_changed(node)
        self._reboots.consider(node)

    def _found_alive(self, node: Node) -> None:
        """ReturnToService=2: a node that is down and answers a ping goes back, whoever set it (measured)."""
        if self._state.conf.return_to_service != 2 or not node.flags & DOWN:
            return
        if node.flags & _NOT_PINGED or node.silent_since is not None:
            return
        delay_s = _PING_FOUND_S + self._state.rng.uniform(0.0, self._state.ping_s)
        node.stop("back")
        node.timers["back"] = self._state.timeline.after(delay_s, lambda: self._pinged_back(node))

    def _pinged_back(self, node: Node) -> None:
        node.stop("back")
        if node.flags & DOWN and not node.flags & _NOT_PINGED and node.silent_since is None:
            self._answers(node)

    # ------------------------------------------------------------ pings

    def fell_silent(self, node: Node) -> None:
        """slurmd does not answer from now on; slurmctld finds out."""
        if node.silent_since is not None:
            return
        node.silent_since = self._state.timeline.now
        node.stop("answer", "back")
        if not node.flags & _NOT_PINGED:
            self._watch(node)

    def _watch(self, node: Node) -> None:
        """The next round of pings finds it silent; SlurmdTimeout later it is down.

        Measured with SlurmdTimeout=12: DOWN after 25 to 29 s.
        """
        state = self._state
        ping_s = state.ping_s
        missed_s = state.rng.uniform(1.0, ping_s + 1.0)
        lost_s = state.conf.slurmd_timeout_s + _PING_LOST_S + state.rng.uniform(0.75, 1.25) * ping_s
        node.stop("ping", "down")
        node.timers["ping"] = state.timeline.after(missed_s, lambda: self._missed(node))
        node.timers["down"] = state.timeline.after(max(lost_s, missed_s), lambda: self._given_up(node))

    def _missed(self, node: Node) -> None:
        node.stop("ping")
        if not node.flags & NOT_RESPONDING:
            node.flags |= NOT_RESPONDING
            self._state.node_changed(node)

    def _given_up(self, node: Node) -> None:
        node.stop("down")
        if node.flags & DOWN:
            return
        state = self._state
        node.flags |= DOWN | NOT_RESPONDING
        node.flags &= ~UNKNOWN
        if not node.reason:
            state.set_reason(node, NOT_RESPONDING_REASON)
        elif state.release.appends_not_responding:
            state.append_reason(node, NOT_RESPONDING_REASON)
        lost = self._jobs.detach(node)
        state.node_changed(node)
        self._jobs.lost_node(lost)
        self._reboots.consider(node)

    def controller_restarts(self) -> None:
        """slurmctld starts from its saved state: nodes are unknown until they register (measured)."""
        state = self._state
        for node in list(state.nodes.values()):
            if node.flags & (DOWN | REBOOT_ISSUED):
                self._found_alive(node)
                continue
            if node.job is None:
                # Its jobs tell what state the others are in.
                node.flags |= UNKNOWN
                state.node_changed(node)
            if node.silent_since is None:
                node.stop("answer")
                delay_s = state.rng.uniform(*_ANSWERS_S)
                node.timers["answer"] = state.timeline.after(delay_s, self._answerer(node))
            else:
                self._watch(node)

    def _answerer(self, node: Node) -> Callable[[], None]:
        return lambda: self._answers(node)
