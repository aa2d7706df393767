"""The technician: days after a ticket a part is replaced, and somebody says so."""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_lifecycle.core.model import Rung, Verb
from slurm_lifecycle.ports import TicketFacts
from slurm_lifecycle.simulation.machines.faults import DAY_S, HOUR_S, MINUTE_S
from slurm_lifecycle.simulation.people.toolbox import Then, Toolbox

ACTOR = "technician"
_LOOK_S = 5 * MINUTE_S
_BOOT_LIMIT_S = 2 * HOUR_S


@dataclass(frozen=True, slots=True)
class TechnicianSettings:
    """How long parts take.

    Attributes:
        rma_s: least and most time from the ticket until a replaced part is in: 5 to 14 days.
        reseat_s: the same for a cable or card that is only reseated (judgement).
        again_s: between two visits to a node that did not come up.
    """

    rma_s: tuple[float, float] = (5 * DAY_S, 14 * DAY_S)
    reseat_s: tuple[float, float] = (4 * HOUR_S, 2 * DAY_S)
    again_s: float = 12 * HOUR_S


class Technician:
    """Takes tickets, each once, and works on each node for one of them at a time.

    Attributes:
        at_work: nodes with a case under way, and since when.
        on_take: told of a node whose case begins.
        on_visit: told of a node when its parts have been replaced.
    """

    def __init__(self, tools: Toolbox, settings: TechnicianSettings) -> None:
        """No case yet."""
        self.at_work: dict[str, float] = {}
        self.on_take: list[Callable[[str], None]] = []
        self.on_visit: list[Callable[[str], None]] = []
        self._tools = tools
        self._settings = settings

    def on_ticket(self, facts: TicketFacts) -> None:
        """A ticket of the daemon's."""
        reseat = facts.op_id.rpartition(".")[0].endswith(f".{Rung.RESEAT.value}")
        self.take(facts.node, facts.op_id, reseat=reseat)

    def take(
        self,
        node: str,
        case: str,
        *,
        reseat: bool = False,
        then: Then | None = None,
    ) -> None:
        """Take a case; a node with one already gets no second.

        Args:
            case: names the case; the time that it takes is drawn by it.
            then: called when the node runs well again; without it the daemon is asked to check the node.
        """
        if node in self.at_work:
            return
        self.at_work[node] = self._tools.timeline.now
        for told in self.on_take:
            told(node)
        low, high = self._settings.reseat_s if reseat else self._settings.rma_s
        delay_s = self._tools.draw(node, f"parts/{case}", low, high)
        self._tools.timeline.after(delay_s, lambda: self._visit(node, case, 0, reseat, then))

    def _visit(self, node: str, case: str, visits: int, reseat: bool, then: Then | None) -> None:
        machines = self._tools.machines
        if node not in machines:
            del self.at_work[node]
            return
        if reseat and visits == 0:
            machines.power_cycle(node, Rung.RESEAT.value)
        else:
            machines.replace_parts(node)
        for told in self.on_visit:
            told(node)

        def came_up(up: bool) -> None:
            self._tools.timeline.after(_LOOK_S, lambda: looked(up))

        def looked(up: bool) -> None:
            if node in machines and not (up and machines.usable(node)):
                again = self._settings.again_s
                self._tools.timeline.after(again, lambda: self._visit(node, case, visits + 1, reseat, then))
                return
            del self.at_work[node]
            if then is not None:
                then()
            else:
                self._tools.ask(Verb.RMA_CLOSE, node, ACTOR, f"{case}: done, it runs")

        self._tools.when_up(node, _BOOT_LIMIT_S, came_up)
