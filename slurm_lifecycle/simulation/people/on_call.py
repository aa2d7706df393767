"""People around a fleet, by trade: on call, technician, administrator, and who runs everything by hand.

People look at Slurm and at the machines, never at the daemon's record; of the daemon they know its tickets,
its pages, and its inbox.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.core.plan import Notice
from slurm_lifecycle.simulation.machines.agent import NodeAgents
from slurm_lifecycle.simulation.machines.faults import HOUR_S, MINUTE_S
from slurm_lifecycle.simulation.people.technician import Technician
from slurm_lifecycle.simulation.people.toolbox import Toolbox

ACTOR = "oncall"
_BOOT_LIMIT_S = HOUR_S


def _nothing(up: bool) -> None:
    del up


@dataclass(frozen=True, slots=True)
class OnCallSettings:
    """How whoever is on call works.

    Attributes:
        response_s: from a page until somebody looks, on average; drawn between half and one and a half of it.
        work_s: hands-on time for one node; one person works on one node at a time.
        reinstall_s: for installing a node by hand.
        again_s: what still waits after so long is looked at again.
    """

    response_s: float = 30 * MINUTE_S
    work_s: float = 15 * MINUTE_S
    reinstall_s: float = HOUR_S
    again_s: float = 4 * HOUR_S


class OnCall:
    """Answers the daemon's pages.

    Args:
        standing: what waits for a person now, as the daemon's last plan says; with it, what is still there
            after `again_s` is taken up again.

    Attributes:
        answered: pages that somebody looked at, by their first word.
    """

    def __init__(
        self,
        tools: Toolbox,
        technician: Technician,
        agents: NodeAgents,
        settings: OnCallSettings,
        standing: Callable[[], Iterable[Notice]] = tuple,
    ) -> None:
        """Nobody has been paged."""
        self.answered: dict[str, int] = {}
        self._tools = tools
        self._technician = technician
        self._agents = agents
        self._settings = settings
        self._standing = standing
        self._looks: dict[str, int] = {}
        self._free_at = 0.0

    def on_page(self, notice: Notice) -> None:
        """A page arrives; somebody looks some time later."""
        number = self._looks.get(notice.key, 0)
        self._looks[notice.key] = number + 1
        half, most = 0.5 * self._settings.response_s, 1.5 * self._settings.response_s
        delay_s = self._tools.draw(notice.key, f"page/{number}", half, most)
        self._tools.timeline.after(delay_s, lambda: self._look(notice))

    def _look(self, notice: Notice) -> None:
        word, _, rest = notice.key.partition(":")
        self.answered[word] = self.answered.get(word, 0) + 1
        if word == "breaker":
            self._breaker(rest.rpartition(":")[0])
        elif word == "busy":
            self._take_hanging_off(notice.node)
        elif word == "waits":
            self._waits(notice.node, notice.key, rest.split(":")[1] if ":" in rest else "")
        elif notice.node:
            self._overdue(notice.node, notice.key)
        self._tools.timeline.after(self._settings.again_s, lambda: self._again(notice))

    def _again(self, notice: Notice) -> None:
        if notice.node in self._technician.at_work:
            self._tools.timeline.after(self._settings.again_s, lambda: self._again(notice))
        elif any(one.key == notice.key for one in self._standing()):
            self.on_page(notice)

    def _take_hanging_off(self, node: str) -> None:
        """Whoever looks sees whether the job makes steps; one that does is left to its end."""
        strikes = self._tools.machines.strikes
        if any(strikes.blame(job.job_id, job.restarts) for job in self._tools.ctld.jobs_on(node)):
            self._tools.take_jobs_off(node)

    def _overdue(self, node: str, case: str) -> None:
        """It takes too long: Slurm may wait for a GPU that will not come back, or the machine is dead."""
        view = self._tools.view(node)
        if view is not None and "INVALID_REG" in view.state:
            self._technician.take(node, case)
        else:
            self._see_to(node, _nothing)

    def _breaker(self, scope: str) -> None:
        """Reset when what struck many nodes at once is over."""
        timeline = self._tools.timeline
        when = max(timeline.now, self._tools.machines.trouble_until) + self._settings.work_s

        def reset() -> None:
            self._tools.ask(Verb.BREAKER_RESET, scope, ACTOR, "the cause is over")

        timeline.at(when, reset)

    # ---------------------------------------------------------------- one node

    def _waits(self, node: str, case: str, word: str) -> None:
        if node in self._technician.at_work:
            return
        if node not in self._tools.machines:
            self._release(node, "it is not there any more")
        elif word == "drain_timeout":
            self._tools.take_jobs_off(node)
            self._later(lambda: self._release(node, "its jobs were taken off"))
        elif word == "awaiting_person" and self._tools.machines.faulty(node):
            self._reinstall(node, case)
        else:
            self._later(lambda: self._see_to(node, lambda up: self._judge(node, case, up)))

    def _later(self, then: Callable[[], None]) -> None:
        """When there has been time for it: one pair of hands works on one node at a time."""
        timeline = self._tools.timeline
        self._free_at = max(timeline.now, self._free_at) + self._settings.work_s
        timeline.at(self._free_at, then)

    def _release(self, node: str, why: str) -> None:
        self._tools.ask(Verb.RELEASE, node, ACTOR, why)

    def _judge(self, node: str, case: str, up: bool) -> None:
        if up or node not in self._tools.machines:
            self._release(node, "looked at: it runs")
        else:
            self._technician.take(node, case)

    def _reinstall(self, node: str, case: str) -> None:
        """The ladder is exhausted: a person installs it by hand, or has parts replaced."""

        def looked(up: bool) -> None:
            good = up and node in self._tools.machines and not self._tools.machines.faulty(node)
            self._judge(node, case, good)

        def installed() -> None:
            self._tools.power_cycle(node, "reimage")
            self._when_up(node, looked)

        self._tools.timeline.after(self._settings.reinstall_s, installed)

    def _when_up(self, node: str, then: Callable[[bool], None]) -> None:
        """Some time after it booted, or when it is clear that it will not."""
        self._tools.when_up(node, _BOOT_LIMIT_S, lambda up: self._later(lambda: then(up)))

    def _see_to(self, node: str, then: Callable[[bool], None]) -> None:
        """Make it run: power for a dead machine, a start for a dead agent."""
        machines = self._tools.machines
        if node not in machines or node in self._technician.at_work:
            return
        machine = machines.machine(node)
        if machine.up and machine.slurmd:
            self._agents.revive(node)
            then(machine.reachable)
        elif machine.up:
            machines.start_slurmd(node)
            then(machine.reachable)
        elif machine.installing:
            then(True)
        else:
            if machine.booting is None:
                self._tools.power_cycle(node, "power")
            self._when_up(node, lambda up: self._started(node, up, then))

    def _started(self, node: str, up: bool, then: Callable[[bool], None]) -> None:
        if node in self._tools.machines:
            self._agents.revive(node)
        then(up)
