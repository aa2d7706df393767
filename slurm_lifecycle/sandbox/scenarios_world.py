"""What a scenario is, what it may use, and the notes that one under way makes for its judgement."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from slurm_lifecycle.sandbox.bmcs import Bmc
from slurm_lifecycle.sandbox.scenarios_case import FENCE, Facts, Judgement
from slurm_lifecycle.sandbox.scenarios_record import Record


@dataclass(frozen=True, slots=True)
class Wait:
    """What a scenario waits for, and for how long at most."""

    until: Callable[[], bool]
    timeout_s: float
    what: str


Play = Generator[Wait, None, None]


class World(Protocol):
    """What a scenario may use."""

    record: Record
    adopt_after_s: float

    def now(self) -> float:
        """Seconds since the epoch."""

    def inject(self, node: str, fault: str, **details: Any) -> None:
        """Makes a node faulty."""

    def slurm(self, *argv: str) -> str:
        """Runs a client command of Slurm as an administrator would."""

    def submit(self, seconds: float, *options: str) -> str:
        """Submits a user's job; returns its id."""

    def suite(self, *argv: str) -> str:
        """Runs a command of the suite; what it printed."""

    def read(self, *argv: str) -> Any:
        """What a read command of the suite prints as JSON."""

    def kill_daemon(self) -> None:
        """Kills the daemon by SIGKILL."""

    def start_daemon(self) -> None:
        """Starts the daemon."""

    def image(self, node: str) -> str:
        """The image that a node runs."""

    def tickets(self) -> list[Path]:
        """Tickets on disk."""

    def replace_gpu(self, node: str, gpu: int) -> None:
        """A technician puts a new GPU into a node."""

    def bmc(self, node: str) -> Bmc:
        """The node's BMC."""

    def reimage_by(self, method: str) -> None:
        """The administrator changes how nodes are reimaged, `command` or `pxe`, and restarts the daemon."""


@dataclass(slots=True)
class Run:
    """One scenario under way: notes for its judgement, and its last word for the table."""

    scenario: Scenario
    world: World
    began: float
    ended: float = 0.0
    at: dict[str, float] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)
    waits_for: str = ""

    @property
    def node(self) -> str:
        """The node that it is about; the first one where it has several."""
        return self.scenario.nodes[0]

    def mark(self, what: str) -> None:
        """Notes when something was done."""
        self.at[what] = self.world.now()

    def seen(self, *tokens: str, reason: str = "") -> bool:
        """Whether the node shows every token and the reason's beginning now."""
        now = self.world.record.now(self.node)
        return set(tokens) <= now.tokens and now.reason.startswith(reason)

    def free(self, node: str = "") -> bool:
        """Whether users' jobs may start on the node now."""
        record, name = self.world.record, node or self.node
        return record.now(name).in_service and not record.fenced_at(name, self.world.now(), FENCE)

    def rebooting(self) -> bool:
        """Whether Slurm was asked to reboot the node since this scenario began."""
        return bool(self.world.record.reboot_requests(self.node, self.began))

    def ticket(self) -> str:
        """The node's ticket on disk; empty where there is none."""
        for path in self.world.tickets():
            if path.name.startswith(f"{self.node}."):
                return path.read_text(encoding="utf-8", errors="replace")
        return ""

    def step(self) -> str:
        """Step of the node's open incident, as the suite says; only to know when to stop waiting."""
        found = self.world.read("incidents", "--node", self.node, "--json")
        return str(found[0]["step"]) if found else ""

    def stays(self, seconds: float, what: str) -> Wait:
        """A wait for time to pass."""
        until = self.world.now() + seconds
        return Wait(lambda: self.world.now() >= until, seconds + 5, what)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    Attributes:
        phase: scenarios of one phase run side by side, phases one after the other, so that faults that are
            not meant to trip the breaker do not do it together.
        to_the_end: what must stay as it is is watched until the whole demonstration ends.
    """

    name: str
    nodes: tuple[str, ...]
    phase: int
    expected: str
    play: Callable[[Run], Play]
    judge: Callable[[Record, str, Facts], Judgement]
    to_the_end: bool = False
