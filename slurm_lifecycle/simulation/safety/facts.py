"""What is true in a run of the safety suite, whatever the daemon read or wrote: what oracles judge from."""

import re
from dataclasses import dataclass

from slurm_lifecycle.core.model import NodeView, Verb
from slurm_lifecycle.core.plan import Plan
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.simulation.machines.bmc import Bmcs
from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.safety.journal import Journal
from slurm_lifecycle.simulation.safety.trace import Trace
from slurm_lifecycle.simulation.safety.trouble import TroubledSlurm
from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.timeline import Timeline

OUR_REASON = "slc:"
OUR_FENCE = "slc-"
DISRUPTIVE = frozenset({"reboot", "power", "reimage"})
OUT = frozenset(
    {"DRAIN", "DOWN", "NOT_RESPONDING", "FAIL", "INVALID_REG", "REBOOT_REQUESTED", "REBOOT_ISSUED"}
)
# What Slurm writes where a person reboots a node that had no reason; the daemon's own reboots have one.
_A_PERSONS_REBOOT = ("reboot issued", "reboot requested", "Reboot ASAP")
_VERDICT = re.compile(r"slc1 ([0-9a-f-]+) [0-9]+ (ok|warn|drain) (\S+) (\S+)(?: img=\S+)?$")
_COULD_NOT_RUN = frozenset({"CHECK_FAILED", "PROBE_HUNG"})


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never happen, and happened."""

    oracle: str
    at: float
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class Effect:
    """Something disruptive that really happened.

    Attributes:
        sent_at: when the daemon sent it.
    """

    at: float
    sent_at: float
    node: str
    rung: str
    op_id: str


@dataclass(slots=True)
class Repair:
    """A repair after which the node was not checked yet.

    Attributes:
        needs_boot: only checks of a boot after it count; a person's word that the node is mended ends that.
    """

    rung: str
    at: float
    needs_boot: bool = True


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a node says of itself, as it stands in Slurm."""

    boot_id: str
    level: str
    code: str
    component: str


def spoken(view: NodeView) -> Spoken | None:
    """The verdict in a node's Extra."""
    found = _VERDICT.search(view.extra)
    return None if found is None else Spoken(*found.groups())


class Facts:
    """The truth, kept up to date by what the world and the daemon do.

    Attributes:
        policy: the one that the daemon runs with now.
        foreign: how a person's reasons begin, by node. They outlive the drain: 24.11 and 25.11 keep a reason
            in service, and Slurm may take the node down under it, which nobody can tell from a person's word.
        effects: everything disruptive that happened, in order.
        repairs: by node, the last one, until the node was checked after it.
        promised: nodes that a person's reboot gives back when it ends, whatever happens to them meanwhile.
        returned_at: when a person last put a node back.
        came_up_at: when a machine last came up, by node; it had begun to boot some time before.
        good_since: since when a node's agent has said in its present boot that all is well.
        passed_at: when a node's checks were last seen to have stood for long enough in its present boot.
        slack_s: how much the daemon's clock may be off.
        nodes_were_moved: some node was given other partitions at some time.
        violations: what the oracles found.
    """

    def __init__(
        self,
        *,
        timeline: Timeline,
        ctld: Slurmctld,
        machines: Machines,
        bmcs: Bmcs,
        policy: Policy,
        journal: Journal,
        trace: Trace,
        slack_s: float,
    ) -> None:
        """Nothing has happened yet."""
        self.timeline = timeline
        self.ctld = ctld
        self.machines = machines
        self.bmcs = bmcs
        self.policy = policy
        self.journal = journal
        self.trace = trace
        self.slack_s = slack_s
        self.slurm: TroubledSlurm | None = None
        self.foreign: dict[str, tuple[str, ...]] = {}
        self.promised: set[str] = set()
        self.effects: list[Effect] = []
        self.repairs: dict[str, Repair] = {}
        self.passed_at: dict[str, float] = {}
        self.returned_at: dict[str, float] = {}
        self.came_up_at: dict[str, float] = {}
        self.good_since: dict[str, float] = {}
        self.asked: dict[int, tuple[Verb, str]] = {}
        self._unanswered: set[int] = set()
        self._requested: set[str] = set()
        self._reserved: dict[str, tuple[str, ...]] = {}
        self.nodes_were_moved = False
        self.violations: list[Violation] = []

    # ---------------------------------------------------------------- reading

    @property
    def now(self) -> float:
        """True time."""
        return self.timeline.now

    def view(self, node: str) -> NodeView | None:
        """The node as slurmctld has it, None where it has none of that name."""
        return self.ctld.views().get(node)

    def fences_over(self, node: str) -> tuple[str, ...]:
        """Reservations of ours that stand over the node."""
        found = self.ctld.reservations()
        return tuple(
            name for name in sorted(found) if name.startswith(OUR_FENCE) and node in found[name].nodes
        )

    def nodes_of_reservation(self, name: str) -> tuple[str, ...]:
        """The nodes under a reservation, also where it has just gone."""
        found = self.ctld.reservations().get(name)
        if found is not None:
            self._reserved[name] = found.nodes
            return found.nodes
        return self._reserved.pop(name, ())

    def jobs_of(self, node: str) -> tuple[str, ...]:
        """Jobs that hold the node: running, suspended, completing there."""
        if self.view(node) is None:
            return ()
        return tuple(sorted(job.job_id for job in self.ctld.jobs_on(node)))

    def persons(self, node: str) -> bool:
        """Whether a person's drain or DOWN stands on the node."""
        view = self.view(node)
        if view is None or not view.state & {"DRAIN", "DOWN"}:
            return False
        return view.reason.startswith(self.foreign.get(node, _A_PERSONS_REBOOT))

    def shown_plainly(self, node: str) -> bool:
        """Whether the daemon can read the node and knows all of its tokens."""
        assert self.slurm is not None
        view = self.view(node)
        return (
            view is not None
            and node not in self.slurm.odd
            and node not in self.slurm.unreadable
            and "UNKNOWN" not in view.state
        )

    def maintained(self, node: str) -> bool:
        """Whether somebody else's maintenance reservation stands over the node."""
        return any(
            not name.startswith(OUR_FENCE) and "MAINT" in one.flags and node in one.nodes
            for name, one in self.ctld.reservations().items()
        )

    def answered(self, plan: Plan) -> tuple[tuple[Verb, str], ...]:
        """What persons had asked for that a plan answers with more than a refusal."""
        return tuple(
            self.asked[key]
            for key, answer in plan.requests_done
            if key in self.asked and not answer.startswith("refused")
        )

    def domain(self, node: str) -> str:
        """The node's failure domain, "" where it has none."""
        return self.policy.domains.get(node, "")

    def checked_for_s(self, node: str) -> float:
        """How long the node's checks have said without a break that all is well in its present boot."""
        since = self.good_since.get(node)
        return self.now - since if since is not None else 0.0

    # ---------------------------------------------------------------- what happens

    def booted(self, node: str) -> None:
        """The machine has come up: whatever was said of it in the boot before is over."""
        self.good_since.pop(node, None)
        self.came_up_at[node] = self.now

    def went_down(self, node: str) -> None:
        """The machine does not run any more."""
        self._settle(node)
        self.good_since.pop(node, None)

    def node_changed(self, node: str) -> None:
        """The node's record in Slurm, or its boot, is another one."""
        view = self.view(node)
        if view is None:
            self.good_since.pop(node, None)
            self.repairs.pop(node, None)
            self.foreign.pop(node, None)
            return
        self._count_no_revoked_reboot(node, view)
        if not view.state & {"REBOOT_REQUESTED", "REBOOT_ISSUED"}:
            self.promised.discard(node)
        self._settle(node)
        if not self._good(node, view):
            self.good_since.pop(node, None)
        elif node not in self.good_since:
            self.good_since[node] = self.now

    def _count_no_revoked_reboot(self, node: str, view: NodeView) -> None:
        """A reboot that somebody took back before it was issued did nothing."""
        if "REBOOT_REQUESTED" in view.state:
            self._requested.add(node)
        elif node in self._requested:
            self._requested.discard(node)
            last = max((at for at, one in enumerate(self.effects) if one.node == node), default=None)
            if last is not None and "REBOOT_ISSUED" not in view.state:
                del self.effects[last]

    def _good(self, node: str, view: NodeView) -> bool:
        said = spoken(view)
        if node not in self.machines:
            # Just added to slurm.conf, and not there yet.
            return False
        machine = self.machines.machine(node)
        return (
            said is not None
            and machine.up
            and machine.slurmd
            and said.boot_id == machine.boot_id
            and said.level != "drain"
            and said.code not in _COULD_NOT_RUN
        )

    def _settle(self, node: str) -> None:
        """The repair counts as checked once its checks have stood for as long as the policy wants."""
        repair, since = self.repairs.get(node), self.good_since.get(node)
        if since is None or node not in self.machines:
            return
        if self.now - since >= self.policy.verify_settle_s - self.slack_s:
            self.passed_at[node] = self.now
        if repair is None:
            return
        stood = self.now - max(since, repair.at)
        fresh_boot = self.came_up_at.get(node, 0.0) > repair.at
        if stood >= self.policy.verify_settle_s - self.slack_s and (fresh_boot or not repair.needs_boot):
            del self.repairs[node]

    def passed_since(self, node: str, since: float) -> bool:
        """Whether the node's checks have stood for long enough in its present boot, at some time since."""
        self._settle(node)
        return self.passed_at.get(node, 0.0) >= since

    def agent_is_silent(self, node: str, unless: str) -> bool:
        """Whether the verdict that stands is of another boot than the present one.

        Args:
            unless: the boot id that the daemon knows to be over.
        """
        view = self.view(node)
        if view is None or node not in self.machines:
            return False
        said = spoken(view)
        return said is None or said.boot_id not in (self.machines.machine(node).boot_id, unless)

    def unchecked(self, node: str) -> Repair | None:
        """The repair after which the node was not checked, None where it was or none was made."""
        self._settle(node)
        return self.repairs.get(node)

    def effect_happened(self, effect: Effect) -> None:
        """Something disruptive happened to a node; a reimage that is handed over again does nothing."""
        again = effect.rung == "reimage" and any(one.op_id == effect.op_id for one in self.effects)
        self.effects.append(effect)
        if (
            not again
            and effect.node not in self.promised
            and self.returned_at.get(effect.node, 0.0) < effect.sent_at
        ):
            self.repairs[effect.node] = Repair(effect.rung, self.now)

    def person_takes(self, node: str, reason: str) -> None:
        """A person drained the node or set it DOWN: how it goes back is theirs from now on."""
        self.repairs.pop(node, None)
        self.foreign[node] = (reason, *_A_PERSONS_REBOOT)

    def person_returns(self, node: str) -> None:
        """A person put the node back, checked or not, and with what was on its way to it."""
        self.returned_at[node] = self.now
        self.repairs.pop(node, None)

    def person_asks(self, request_id: int, verb: Verb, subject: str) -> None:
        """A person put a request into the store."""
        self.asked[request_id] = (verb, subject)
        self._unanswered.add(request_id)

    def asked_about(self, node: str) -> bool:
        """Whether a request about the node waits for its answer."""
        return any(self.asked[one][1] == node for one in self._unanswered)

    def answers_came(self) -> None:
        """The daemon wrote: what persons asked for may have become so.

        Who releases a node says that it is mended: its checks count then, whenever it booted. Who lifts a
        code says that the nodes need none.
        """
        if not self._unanswered:
            return
        for request_id, answer in self.journal.answers(sorted(self._unanswered)):
            self._unanswered.discard(request_id)
            verb, subject = self.asked[request_id]
            repair = self.repairs.get(subject)
            if verb is Verb.BREAKER_LIFT:
                for node, case in self.journal.open_cases().items():
                    if case.lifted:
                        self.repairs.pop(node, None)
            elif repair is not None and "checked" in answer:
                repair.needs_boot = False
