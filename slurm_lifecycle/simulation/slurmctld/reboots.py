"""`scontrol reboot`: asked for, issued, back, too late; and whose drain it takes along."""

from slurm_lifecycle.simulation.slurmctld.records import (
    DOWN,
    DRAIN,
    FAIL,
    NOT_RESPONDING,
    REBOOT_ISSUED,
    REBOOT_REQUESTED,
    REBOOTING,
    UNKNOWN,
    Node,
)
from slurm_lifecycle.simulation.slurmctld.settings import SlurmRefused
from slurm_lifecycle.simulation.slurmctld.state import State

# From an idle node to an issued reboot (measured: 0.4 to 10 s). The lower end lies above the scheduler's
# pause: a node that waits for a plain reboot gets the next job first (measured).
_ISSUED_AFTER_S = (0.6, 10.0)
_NEXT_STATES = ("", "RESUME", "DOWN")


class Reboots:
    """The reboot part."""

    def __init__(self, state: State) -> None:
        self._state = state

    def request(self, node: Node, *, asap: bool, nextstate: str, reason: str) -> None:
        """`scontrol reboot`. A node that reboots already is skipped, exit status 0 (measured)."""
        state = self._state
        if nextstate.upper() not in _NEXT_STATES:
            raise SlurmRefused(f"Invalid nextstate: {nextstate}")
        if node.flags & REBOOTING:
            return
        drained = bool(node.flags & DRAIN)
        node.next_state = nextstate.upper()
        node.undrains = asap and not drained
        if asap:
            if not nextstate and (not drained or state.release.asap_clears_drain):
                node.next_state = "RESUME"
            node.flags |= DRAIN
        said = reason or node.reason or ("Reboot ASAP" if asap else "reboot requested")
        if said != node.reason:
            state.set_reason(node, said)
        node.flags |= REBOOT_REQUESTED
        state.node_changed(node)
        self.consider(node)

    def cancel(self, node: Node) -> None:
        """`scontrol cancel_reboot`.

        Takes anybody's drain and Reason along, for a plain reboot too (measured): only where a state after
        the boot was asked for, and the drain was there before, slurmctld knows that it is not its own.
        """
        if not node.flags & REBOOT_REQUESTED:
            raise SlurmRefused("Requested operation is presently disabled")
        node.flags &= ~REBOOT_REQUESTED
        if node.undrains or not node.next_state:
            node.flags &= ~DRAIN
            node.reason, node.reason_at_s = "", None
        self._forget(node)
        self._state.node_changed(node)

    def _forget(self, node: Node) -> None:
        node.next_state, node.undrains = "", False
        node.stop("issue")

    def consider(self, node: Node) -> None:
        """The node may be ready for the reboot that was asked for."""
        if not node.flags & REBOOT_REQUESTED or "issue" in node.timers or self._waits(node):
            return
        delay_s = self._state.rng.uniform(*_ISSUED_AFTER_S)
        node.timers["issue"] = self._state.timeline.after(delay_s, lambda: self._issue(node))

    def _waits(self, node: Node) -> bool:
        """A job, a suspended one too, or silence holds it up, but not at a node that is down (measured)."""
        silent = node.silent_since is not None or node.flags & (NOT_RESPONDING | UNKNOWN)
        return not node.flags & DOWN and (node.job is not None or bool(silent))

    def _issue(self, node: Node) -> None:
        node.stop("issue")
        if not node.flags & REBOOT_REQUESTED or self._waits(node):
            return
        state = self._state
        silent = node.silent_since is not None
        state.append_reason(node, "reboot issued")
        node.flags = node.flags & ~REBOOT_REQUESTED | REBOOT_ISSUED | DOWN
        node.boot_req_at = state.timeline.now
        # Such a node is not pinged.
        node.stop("ping", "down", "answer", "back")
        wait_s = state.conf.resume_timeout_s + state.release.timeout_slack_s * state.rng.uniform(0.6, 1.0)
        node.timers["reboot"] = state.timeline.after(wait_s, lambda: self._too_late(node))
        state.node_changed(node)
        if not silent and state.side.responds(node.name):
            state.side.reboot(node.name)

    def returned(self, node: Node) -> None:
        """It registered and is up again, booted as asked or by ReturnToService. The caller tells of it.

        What was promised for after the boot is kept even where the boot came too late, until somebody
        updates the node's state (measured with ASAP, seen in the sources).
        """
        node.stop("reboot")
        node.flags &= ~(REBOOT_ISSUED | DOWN | NOT_RESPONDING)
        promised = node.next_state
        self._forget(node)
        if promised:
            # Whoever set it, and whenever (measured).
            node.flags &= ~(DRAIN | FAIL)
        if promised == "DOWN":
            node.flags |= DOWN
            self._state.append_reason(node, "reboot complete")
        self._state.forget_reason(node)

    def _too_late(self, node: Node) -> None:
        """ResumeTimeout is over."""
        node.stop("reboot")
        state = self._state
        node.flags = node.flags & ~REBOOT_ISSUED | DOWN
        if state.release.timeout_drops_drain:
            node.flags &= ~DRAIN
        node.boot_req_at = 0.0
        state.append_reason(node, "reboot timed out")
        state.node_changed(node)

    def state_updated(self, node: Node) -> None:
        """Somebody set a state: outside of a reboot that ends what was promised for after one."""
        if not node.flags & REBOOTING:
            node.next_state, node.undrains = "", False

    def abandon(self, node: Node) -> None:
        """RESUME ends any reboot as far as Slurm knows. The caller tells of the change."""
        node.flags &= ~REBOOTING
        self._forget(node)
        node.stop("reboot")

    def unexpected(self, node: Node) -> bool:
        """A boot by itself ends a reboot that was only asked for, where the release looks at that.

        Returns:
            Whether there was one; the caller tells of the change.
        """
        if not self._state.release.spares_drained or not node.flags & REBOOT_REQUESTED:
            return False
        node.flags &= ~REBOOT_REQUESTED
        if node.undrains:
            node.flags &= ~DRAIN
        self._forget(node)
        return True
