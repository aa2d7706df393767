"""Hot standby: nodes beside the fleet, kept free by a reservation until one of the fleet is out.

What a site would do by a script: as many nodes as are out leave the reservation, so that a job finds its full
number at its next start; as nodes come back, idle ones go into the reservation again.
"""

from collections.abc import Iterable

from slurm_lifecycle.simulation.lab.accounts import OUT
from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.slurmctld.settings import SlurmRefused
from slurm_lifecycle.simulation.timeline import Timeline

# Long after the end of any simulation.
_LASTS_S = 3000 * 86_400.0
# A script that looks at what it was told of once a second.
_LOOK_AFTER_S = 1.0


class Standby:
    """Keeps the standby of one partition.

    Args:
        names: all nodes of the partition.
        kept: how many of them are beside the fleet; the last by name begin as standby.

    Attributes:
        reserved: nodes that are kept free now, all of them in service.
        given: how often a node was given to the fleet.
    """

    def __init__(
        self, timeline: Timeline, ctld: Slurmctld, partition: str, names: Iterable[str], kept: int
    ) -> None:
        """Reserves the nodes and listens from now on."""
        ordered = sorted(names)
        self.name = f"hot-standby-{partition}"
        self.reserved = set(ordered[len(ordered) - kept :])
        self.given = 0
        self._timeline = timeline
        self._ctld = ctld
        self._members = frozenset(ordered)
        self._up = {name for name in ordered if ctld.view(name).state.isdisjoint(OUT)}
        self._wanted = len(ordered) - kept
        self._idle_s = 0.0
        self._since = timeline.now
        self._in_force = False
        self._looking = False
        self.reserved &= self._up
        self._write()
        ctld.on_node_change.append(self._changed)

    def idle_node_s(self) -> float:
        """Node-seconds kept idle so far."""
        now = self._timeline.now
        self._idle_s += (now - self._since) * len(self.reserved)
        self._since = now
        return self._idle_s

    # ------------------------------------------------------------ inside

    def _changed(self, name: str) -> None:
        if name not in self._members:
            return
        up = self._ctld.view(name).state.isdisjoint(OUT)
        if up != (name in self._up):
            if up:
                self._up.add(name)
            else:
                self._up.discard(name)
        elif self._fleet() <= self._wanted:
            # Only jobs came and went, and there is no node to spare.
            return
        if not self._looking:
            self._looking = True
            self._timeline.after(_LOOK_AFTER_S, self._look)

    def _fleet(self) -> int:
        """Nodes in service that jobs may have."""
        return len(self._up) - len(self.reserved & self._up)

    def _look(self) -> None:
        self._looking = False
        self.idle_node_s()
        before = set(self.reserved)
        self.reserved &= self._up
        missing = self._wanted - self._fleet()
        if missing > 0:
            for name in sorted(self.reserved)[:missing]:
                self.reserved.discard(name)
                self.given += 1
        elif missing < 0:
            self.reserved.update(self._idle(-missing))
        if self.reserved != before:
            self._write()

    def _idle(self, most: int) -> list[str]:
        """Nodes of the fleet without a job; the last by name, since jobs take the first."""
        found: list[str] = []
        for name in sorted(self._up - self.reserved, reverse=True):
            if "IDLE" in self._ctld.view(name).state and "COMPLETING" not in self._ctld.view(name).state:
                found.append(name)
                if len(found) == most:
                    break
        return found

    def _write(self) -> None:
        now, nodes = self._timeline.now, sorted(self.reserved)
        try:
            if self._in_force and nodes:
                self._ctld.update_reservation(self.name, nodes=nodes)
            elif nodes:
                self._ctld.create_reservation(self.name, nodes, now, now + _LASTS_S, (), ("root",))
            elif self._in_force:
                self._ctld.delete_reservation(self.name)
            self._in_force = bool(nodes)
        except SlurmRefused:
            # Somebody's reservation lies there; the next change brings it here again.
            self._in_force = self.name in self._ctld.reservations()
