"""When faults come: each node by its own stream, lemons more often, and events that strike many at once."""

import math
import random
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from slurm_lifecycle.simulation.machines.faults import (
    DAY_S,
    HOUR_S,
    INTERRUPTIONS,
    INTERRUPTIONS_DAYS,
    INTERRUPTIONS_NODES,
    KINDS,
    MINUTE_S,
    FaultKind,
    SeenBy,
    draw_fault,
)
from slurm_lifecycle.simulation.machines.machine import Machine, Machines
from slurm_lifecycle.simulation.streams import stream

# 3.8 interruptions per 1,000 node-days.
PUBLISHED_RATE = INTERRUPTIONS / INTERRUPTIONS_DAYS / INTERRUPTIONS_NODES * 1000
# What an agent may take for a fault that is none: probes on a busy machine, a driver that reloads.
_FALSE_CODES = ("GPU_COUNT", "XID74", "GPU_LOST", "RECOVERY_RESET", "DRIVER_DOWN")


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often faults come to a fleet.

    Attributes:
        per_1000_node_days: of all kinds together, on average over lemons and others.
        scale: multiplies every rate, lemons' and false alarms' too.
        by_cause: multiplies the rate of the kinds of a cause, or of one kind by its key.
        by_kind: rates per 1,000 node-days by kind, in the place of all published ones; empty for those.
        lemon_share: share of nodes that are lemons: 1.2 % in Meta's RSC-1.
        lemon_factor: how many times as often a lemon fails.
        false_alarms_per_1000_node_days: an agent sees what is not there; under 1 % of good jobs met a check
            that failed in Meta's RSC.
        false_alarm_s: mean time until one goes by itself.
    """

    per_1000_node_days: float = PUBLISHED_RATE
    scale: float = 1.0
    by_cause: Mapping[str, float] = field(default_factory=dict)
    by_kind: Mapping[str, float] = field(default_factory=dict)
    lemon_share: float = 0.012
    lemon_factor: float = 10.0
    false_alarms_per_1000_node_days: float = 0.1
    false_alarm_s: float = 2 * HOUR_S

    def table(self) -> tuple[tuple[FaultKind, float], ...]:
        """Kinds that come and their rates per node and second, for a node that is no lemon."""
        unit = self.scale / (1000.0 * DAY_S)
        if self.by_kind:
            rates = [(KINDS[key], rate) for key, rate in sorted(self.by_kind.items())]
        else:
            share = self.per_1000_node_days / INTERRUPTIONS
            rates = [(kind, kind.count * share) for kind in KINDS.values()]
        plain = unit / (1.0 + self.lemon_share * max(0.0, self.lemon_factor - 1.0))
        times = {
            kind.key: self.by_cause.get(kind.key, self.by_cause.get(kind.cause, 1.0)) for kind, _ in rates
        }
        return tuple(
            (kind, rate * plain * times[kind.key]) for kind, rate in rates if rate * times[kind.key] > 0
        )


class _Draw:
    """Draws a kind by weight."""

    def __init__(self, table: Sequence[tuple[FaultKind, float]]) -> None:
        self._kinds = [kind for kind, _ in table]
        self._sums = list(accumulate(rate for _, rate in table))
        self.rate = self._sums[-1] if self._sums else 0.0

    def kind(self, rng: random.Random) -> FaultKind:
        """One of them; always one draw."""
        return self._kinds[min(bisect(self._sums, rng.random() * self.rate), len(self._kinds) - 1)]


def _gap(rng: random.Random, rate: float) -> float:
    return -math.log(1.0 - rng.random()) / rate


class Arrivals:
    """Faults arrive as a Poisson process of each node's own, whatever is done to the node meanwhile.

    Attributes:
        on_alarm: an agent is about to see something that is not there: node, code, component, for how long.
        arrived: by kind, faults that came so far.
    """

    def __init__(self, machines: Machines, rates: FaultRates) -> None:
        """Nothing comes before `start`."""
        self.on_alarm: list[Callable[[str, str, str, float], None]] = []
        self.arrived: dict[str, int] = {}
        self._machines = machines
        self._rates = rates
        self._draw = _Draw(rates.table())
        # A lemon's own trouble is its GPUs', which a reboot seems to mend.
        self._lemon_draw = _Draw(
            [row for row in rates.table() if row[0].component == "gpu{}" and row[0].chance("reboot") >= 0.4]
        )
        self._stopped = False

    def start(self) -> None:
        """From now on faults come."""
        for name in self._machines.names():
            self.follow(self._machines.machine(name))

    def stop(self) -> None:
        """No more faults come."""
        self._stopped = True

    def follow(self, machine: Machine) -> None:
        """Faults come to this machine from now on."""
        if self._draw.rate > 0:
            self._next(machine, 0)
        alarms = self._rates.false_alarms_per_1000_node_days * self._rates.scale / (1000.0 * DAY_S)
        if alarms > 0:
            self._next_alarm(machine, 0, alarms)
        rng = stream(self._machines.seed, machine.name, "lemon")
        if rng.random() < self._rates.lemon_share and self._lemon_draw.rate > 0:
            machine.lemon = True
            component = f"gpu{int(rng.random() * max(1, machine.gpus))}"
            # Its own trouble alone makes up for all the faults that it has more than others.
            rate = self._draw.rate * max(0.0, self._rates.lemon_factor - 1.0)
            if rate > 0:
                self._next_lemon(machine, 0, rate, component)

    def _there(self, machine: Machine) -> bool:
        name = machine.name
        return not self._stopped and name in self._machines and self._machines.machine(name) is machine

    def _next(self, machine: Machine, number: int) -> None:
        rng = stream(self._machines.seed, machine.name, f"fault/{number}")

        def arrive() -> None:
            if not self._there(machine):
                return
            self._arrive(machine, self._draw.kind(rng), rng)
            self._next(machine, number + 1)

        self._machines.timeline.after(_gap(rng, self._draw.rate), arrive)

    def _next_lemon(self, machine: Machine, number: int, rate: float, component: str) -> None:
        rng = stream(self._machines.seed, machine.name, f"lemon/{number}")

        def arrive() -> None:
            if not self._there(machine) or not machine.lemon:
                return
            self._arrive(machine, self._lemon_draw.kind(rng), rng, component)
            self._next_lemon(machine, number + 1, rate, component)

        self._machines.timeline.after(_gap(rng, rate), arrive)

    def _next_alarm(self, machine: Machine, number: int, rate: float) -> None:
        rng = stream(self._machines.seed, machine.name, f"alarm/{number}")

        def arrive() -> None:
            if not self._there(machine):
                return
            code = _FALSE_CODES[int(rng.random() * len(_FALSE_CODES))]
            lasts_s = self._rates.false_alarm_s * (0.25 + 1.5 * rng.random())
            component = "-" if code == "DRIVER_DOWN" else f"gpu{int(rng.random() * max(1, machine.gpus))}"
            for told in self.on_alarm:
                told(machine.name, code, component, lasts_s)
            self._next_alarm(machine, number + 1, rate)

        self._machines.timeline.after(_gap(rng, rate), arrive)

    def _arrive(self, machine: Machine, kind: FaultKind, rng: random.Random, component: str = "") -> None:
        self.arrived[kind.key] = self.arrived.get(kind.key, 0) + 1
        fault = draw_fault(
            kind, machine.name, machine.gpus, rng, at=self._machines.timeline.now, component=component
        )
        if component:
            # Mended for now; a lemon is what breaks again.
            fault.luck = 0.0
        if kind.seen_by is SeenBy.PERSON:
            for told in self._machines.on_maintenance:
                told(machine.name)
            return
        self._machines.begin(fault)


# ---------------------------------------------------------------- many at once


def power_loss(machines: Machines, nodes: Sequence[str], at: float, lasts_s: float) -> None:
    """A rack loses its power at a time, and gets it back; its machines boot then."""

    def gone() -> None:
        machines.trouble_until = max(machines.trouble_until, at + lasts_s)
        for name in _present(machines, nodes):
            fault = machines.fault(name, KINDS["rack_power"], "-")
            machines.power_off(name)
            machines.timeline.at(at + lasts_s, _back(name, fault.key))

    def _back(name: str, key: str) -> Callable[[], None]:
        def back() -> None:
            if name in machines:
                machines.clear(name, key)
                if not machines.machine(name).up:
                    machines.power_off(name)
                    machines.power_on(name)

        return back

    machines.timeline.at(at, gone)


def switch_loss(machines: Machines, nodes: Sequence[str], at: float, lasts_s: float) -> None:
    """A leaf switch is gone for a while; the hosts behind it live on."""

    def gone() -> None:
        machines.trouble_until = max(machines.trouble_until, at + lasts_s)
        for name in _present(machines, nodes):
            fault = machines.fault(name, KINDS["leaf_switch"], "-")
            machines.timeline.at(at + lasts_s, _back(name, fault.key))

    def _back(name: str, key: str) -> Callable[[], None]:
        return lambda: machines.clear(name, key) if name in machines else None

    machines.timeline.at(at, gone)


def driver_rollout(
    machines: Machines,
    nodes: Sequence[str],
    share: float,
    *,
    at: float,
    within_s: float = HOUR_S,
    mended_at: float | None = None,
) -> tuple[str, ...]:
    """A rollout leaves a driver that does not fit on a share of the nodes, one after another.

    Args:
        within_s: how long the rollout takes.
        mended_at: when a second rollout has mended what is still broken; None for never.

    Returns:
        The nodes that it breaks; which ones, and when, each node's own stream says.
    """
    kind, broken = KINDS["driver_mismatch"], []
    machines.timeline.at(at, lambda: _lasts(machines, at + within_s))
    for name in nodes:
        rng = stream(machines.seed, name, f"rollout/{at:.0f}")
        drawn, when = rng.random(), at + rng.random() * within_s
        if drawn < share:
            broken.append(name)
            machines.timeline.at(when, _breaks(machines, name, kind))
            if mended_at is not None:
                again = max(when, mended_at) + MINUTE_S * rng.random()
                machines.timeline.at(again, _mends(machines, name, f"{kind.key}.-"))
    return tuple(broken)


def _lasts(machines: Machines, until: float) -> None:
    machines.trouble_until = max(machines.trouble_until, until)


def _breaks(machines: Machines, name: str, kind: FaultKind) -> Callable[[], None]:
    def breaks() -> None:
        if name in machines:
            machines.fault(name, kind, "-")

    return breaks


def _mends(machines: Machines, name: str, key: str) -> Callable[[], None]:
    return lambda: machines.clear(name, key, "rollout") if name in machines else None


def _present(machines: Machines, nodes: Sequence[str]) -> list[str]:
    return [name for name in sorted(nodes) if name in machines]
