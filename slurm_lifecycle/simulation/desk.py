"""Where tickets, pages and questions of the simulated daemon arrive."""

from collections.abc import Callable, Sequence

from slurm_lifecycle.core.plan import Notice
from slurm_lifecycle.errors import TransientError
from slurm_lifecycle.ports import CommandResult, TicketFacts


class Desk:
    """Implements `ports.Tickets`, `ports.Notifier` and `ports.NodeCommand`.

    Attributes:
        tickets: by operation id; one written twice is one ticket.
        pages: notices of urgency `page` by key, as first told.
        on_page, on_ticket: told of each new one.
    """

    def __init__(self) -> None:
        """Nothing has arrived yet."""
        self.tickets: dict[str, TicketFacts] = {}
        self.pages: dict[str, Notice] = {}
        self.on_page: list[Callable[[Notice], None]] = []
        self.on_ticket: list[Callable[[TicketFacts], None]] = []

    def write(self, facts: TicketFacts) -> str:
        """A ticket arrives; returns where it is."""
        if facts.op_id not in self.tickets:
            self.tickets[facts.op_id] = facts
            for told in self.on_ticket:
                told(facts)
        return f"{facts.op_id}.md"

    def notify(self, notice: Notice) -> None:
        """A notice arrives; what has been told is not told again."""
        if notice.urgency != "page" or notice.key in self.pages:
            return
        self.pages[notice.key] = notice
        for told in self.on_page:
            told(notice)

    def run(self, node: str, argv: Sequence[str], timeout_s: float) -> CommandResult:
        """No simulated node can be asked for its report: a ticket says so."""
        del argv, timeout_s
        raise TransientError(f"run on {node}", "a simulated node runs no commands")
