"""What people do to a cluster in the safety suite; the facts are told of everything they decide."""

import contextlib
from collections.abc import Callable

from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.simulation.safety.facts import Facts
from slurm_lifecycle.simulation.slurmctld import JobSpec, NodeSpec, Slurmctld, SlurmRefused

Ask = Callable[[Verb, str, str, str], int]


class Hands:
    """The hands of administrators and users. What Slurm refuses is no matter: they try something else later.

    Attributes:
        before_return: told of a node whose drain a person is about to lift.
    """

    def __init__(self, ctld: Slurmctld, facts: Facts, ask: Ask) -> None:
        """Act on a cluster and through the daemon's inbox."""
        self.before_return: list[Callable[[str], None]] = []
        self._ctld = ctld
        self._facts = facts
        self._ask = ask

    def _note(self, node: str, text: str) -> None:
        self._facts.trace.add(self._facts.now, node, text)

    def drain(self, node: str, reason: str) -> None:
        """A person drains."""
        self._take(node, "DRAIN", reason)

    def down(self, node: str, reason: str) -> None:
        """A person sets the node DOWN."""
        self._take(node, "DOWN", reason)

    def _take(self, node: str, state: str, reason: str) -> None:
        self._note(node, f"a person sets {state} {reason!r}")
        with contextlib.suppress(SlurmRefused):
            self._ctld.update_node(node, state, reason)
            self._facts.person_takes(node, reason)

    def take_over(self, node: str, reason: str) -> None:
        """A person replaces the reason of a drain by their own."""
        view = self._facts.view(node)
        if view is None or not view.state & {"DRAIN", "DOWN"}:
            return
        self._note(node, f"a person sets the reason {reason!r}")
        with contextlib.suppress(SlurmRefused):
            self._ctld.set_reason(node, reason)
            self._facts.person_takes(node, reason)

    def slurm_drains(self, node: str, reason: str) -> None:
        """Slurm itself drains, as after a task that could not be killed."""
        view = self._facts.view(node)
        if view is None or view.state & {"DRAIN", "DOWN"}:
            return
        self._note(node, f"Slurm drains: {reason!r}")
        with contextlib.suppress(SlurmRefused):
            self._ctld.update_node(node, "DRAIN", reason)

    def give_back(self, node: str, state: str) -> None:
        """A person returns the node, whoever took it out: UNDRAIN, RESUME or IDLE."""
        view = self._facts.view(node)
        if view is None or not view.state & {"DRAIN", "DOWN"}:
            return
        self._note(node, f"a person sets {state}")
        for told in self.before_return:
            told(node)
        # Before: State=IDLE puts it into service at once.
        repair = self._facts.repairs.pop(node, None)
        with contextlib.suppress(SlurmRefused):
            self._ctld.update_node(node, state)
        view = self._facts.view(node)
        if view is not None and "DRAIN" not in view.state:
            # One that is DOWN still goes back by itself once it answers, as ReturnToService has it.
            self._facts.person_returns(node)
        elif repair is not None:
            self._facts.repairs[node] = repair

    def reboot(self, node: str, *, asap: bool, nextstate: str) -> None:
        """A person reboots the node by Slurm."""
        self._note(node, f"a person reboots it{' ASAP' * asap} {nextstate}")
        with contextlib.suppress(SlurmRefused):
            self._ctld.reboot(node, asap=asap, nextstate=nextstate)
            if asap or nextstate:
                # Such a reboot gives a drained node back, whenever it ends.
                self._facts.person_returns(node)
                self._facts.promised.add(node)

    def cancel_reboot(self, node: str) -> None:
        """A person takes a reboot back, which takes anybody's drain with it."""
        self._note(node, "a person cancels its reboot")
        with contextlib.suppress(SlurmRefused):
            self._ctld.cancel_reboot(node)
            self._facts.person_returns(node)

    def ask(self, verb: Verb, subject: str) -> None:
        """A person asks something of the daemon."""
        self._note(subject, f"a person asks: {verb.value} {subject}")
        self._facts.person_asks(self._ask(verb, subject, "alice", "because"), verb, subject)

    def submit(self, spec: JobSpec) -> None:
        """A user submits a job."""
        with contextlib.suppress(SlurmRefused):
            self._note("", f"job {self._ctld.submit(spec)}: {spec.nodes_min}-{spec.nodes_max} nodes")

    def to_jobs_on(self, node: str, act: Callable[[str], None]) -> None:
        """Something that is done to every job on a node."""
        for job_id in self._facts.jobs_of(node):
            with contextlib.suppress(SlurmRefused):
                act(job_id)

    def end_job(self, job_id: str) -> None:
        """A job ends, however it stands."""
        with contextlib.suppress(SlurmRefused):
            self._ctld.cancel(job_id)

    def reserve(self, name: str, nodes: tuple[str, ...], for_s: float) -> None:
        """A person makes a maintenance reservation."""
        now = self._facts.now
        self._note("", f"a person reserves {name}: {','.join(nodes)} for {for_s:g} s")
        with contextlib.suppress(SlurmRefused):
            self._ctld.create_reservation(name, nodes, now, now + for_s, ("MAINT", "IGNORE_JOBS"))

    def unreserve(self, name: str) -> None:
        """A person deletes a reservation."""
        with contextlib.suppress(SlurmRefused):
            self._ctld.delete_reservation(name)

    def add_to_comment(self, node: str, word: str) -> None:
        """Another tool writes the node's Comment, and keeps what it finds there."""
        view = self._facts.view(node)
        if view is not None and word not in view.comment:
            self._ctld.set_comment(node, f"{word} {view.comment}".strip())

    def add_node(self, spec: NodeSpec) -> None:
        """A node joins slurm.conf."""
        self._note(spec.name, "joins")
        self._ctld.add_node(spec)

    def remove_node(self, node: str) -> None:
        """A node leaves slurm.conf."""
        self._note(node, "leaves")
        self._ctld.remove_node(node)
