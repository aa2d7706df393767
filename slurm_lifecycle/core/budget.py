"""Who may start now: `max_out` and `max_working` per fleet, partition and failure domain, and the breaker."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_lifecycle.core.model import BreakerHit, Incident, NodeView, Trip
from slurm_lifecycle.core.ownership import UNREADABLE, is_out
from slurm_lifecycle.core.policy import Budget, Policy
from slurm_lifecycle.core.transitions import WORKING_STEPS

FLEET = "fleet"


def scopes_of(view: NodeView, policy: Policy) -> tuple[str, ...]:
    """The scopes that a node counts in: the fleet, its partitions, its failure domain."""
    domain = policy.domains.get(view.name)
    return (
        FLEET,
        *(f"partition:{name}" for name in view.partitions),
        *((f"domain:{domain}",) if domain else ()),
    )


def fleet_budget(policy: Policy, node_count: int) -> Budget:
    """The fleet's limits: the policy's own figures, else percentages of all nodes, at least 2."""
    out = policy.fleet.max_out
    working = policy.fleet.max_working
    if out is None:
        out = max(2, int(node_count * policy.fleet_out_percent / 100))
    if working is None:
        working = min(32, max(2, int(node_count * policy.fleet_working_percent / 100)))
    return Budget(out, working)


def _limits(policy: Policy, node_count: int) -> Mapping[str, Budget]:
    return {
        FLEET: fleet_budget(policy, node_count),
        **{f"partition:{name}": one for name, one in policy.partition_budgets.items()},
        **{f"domain:{name}": one for name, one in policy.domain_budgets.items()},
    }


@dataclass(slots=True)
class Ledger:
    """Counts within one tick, so that a burst of admissions cannot overrun a limit."""

    limits: Mapping[str, Budget]
    out: dict[str, int] = field(default_factory=dict)
    working: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        nodes: Mapping[str, NodeView],
        incidents: Iterable[Incident],
        policy: Policy,
        restless: Iterable[str] | None = None,
    ) -> "Ledger":
        """The ledger at the start of a tick.

        Args:
            nodes: all nodes.
            incidents: open ones.
            policy: the site's policy.
            restless: the nodes among which those that are out are; all of them where it is None.
        """
        ledger = cls(_limits(policy, len(nodes)))
        for view in nodes.values() if restless is None else map(nodes.__getitem__, restless):
            if is_out(view):
                ledger._add(ledger.out, scopes_of(view, policy))
        for incident in incidents:
            view_of = nodes.get(incident.node)
            if incident.step in WORKING_STEPS and view_of is not None:
                ledger._add(ledger.working, ledger._scopes_in_work(view_of, policy))
        return ledger

    def _scopes_in_work(self, view: NodeView, policy: Policy) -> tuple[str, ...]:
        """A node whose record cannot be read may be in any partition: it takes a place in each."""
        known = scopes_of(view, policy)
        if UNREADABLE not in view.state:
            return known
        return (*known, *(scope for scope in self.limits if scope.startswith("partition:")))

    @staticmethod
    def _add(counts: dict[str, int], scopes: Iterable[str]) -> None:
        for scope in scopes:
            counts[scope] = counts.get(scope, 0) + 1

    def admit_working(self, scopes: tuple[str, ...]) -> str:
        """Take a working place in every scope; "" when admitted, else the limit that forbids it."""
        for scope in scopes:
            limit = self.limits.get(scope, Budget()).max_working
            if limit is not None and self.working.get(scope, 0) >= limit:
                return f"{scope} already works on {self.working.get(scope, 0)} of at most {limit} nodes"
        self._add(self.working, scopes)
        return ""

    def take_working(self, scopes: tuple[str, ...]) -> None:
        """Take a working place beside the limits: a person released the node, and a check disturbs nobody."""
        self._add(self.working, scopes)

    def give_up_working(self, scopes: tuple[str, ...]) -> bool:
        """Give a working place back where more are taken than a limit allows; False where none is overrun."""
        for scope in scopes:
            limit = self.limits.get(scope, Budget()).max_working
            if limit is not None and self.working.get(scope, 0) > limit:
                for each in scopes:
                    self.working[each] = self.working.get(each, 0) - 1
                return True
        return False

    def admit_out(self, scopes: tuple[str, ...]) -> str:
        """Take a place among unavailable nodes in every scope; "" when admitted, else the limit."""
        for scope in scopes:
            limit = self.limits.get(scope, Budget()).max_out
            if limit is not None and self.out.get(scope, 0) >= limit:
                return f"{scope} already has {self.out.get(scope, 0)} nodes out, limit {limit}"
        self._add(self.out, scopes)
        return ""


def open_trips(trips: Iterable[Trip]) -> tuple[Trip, ...]:
    """Trips that no person has reset."""
    return tuple(trip for trip in trips if trip.reset_at is None)


def blocking_trip(trips: Iterable[Trip], scopes: tuple[str, ...]) -> Trip | None:
    """The open trip that stops new work in any of the scopes."""
    for trip in open_trips(trips):
        if trip.scope in scopes:
            return trip
    return None


def new_trip(
    hits: Iterable[BreakerHit], trips: tuple[Trip, ...], policy: Policy, gpu_nodes: int, now: float
) -> Trip | None:
    """A trip when too many distinct nodes were hit within the window, None otherwise.

    Hits before the last reset of the fleet or of their own domain do not count; those of its very tick do.
    When all are of one failure domain, only that domain is held.
    """
    resets: dict[str, float] = {}
    for trip in trips:
        if trip.reset_at is not None:
            resets[trip.scope] = max(trip.reset_at, resets.get(trip.scope, 0.0))

    def counts(hit: BreakerHit) -> bool:
        domain = resets.get(f"domain:{policy.domains.get(hit.node)}", 0.0)
        return now - hit.at <= policy.breaker.window_s and hit.at >= max(domain, resets.get(FLEET, 0.0))

    recent = [hit for hit in hits if counts(hit)]
    tripped = {trip.scope for trip in open_trips(trips)}
    nodes = {hit.node for hit in recent if f"domain:{policy.domains.get(hit.node)}" not in tripped}
    if FLEET in tripped or len(nodes) < policy.breaker.threshold(gpu_nodes):
        return None
    domains = {policy.domains.get(node) for node in nodes}
    only = next(iter(domains)) if len(domains) == 1 else None
    scope = f"domain:{only}" if only else FLEET
    codes = sorted({hit.code for hit in recent if hit.node in nodes})
    window_min = policy.breaker.window_s / 60
    reason = f"{len(nodes)} nodes within {window_min:g} min: {' '.join(codes[:5])}"
    return Trip(scope, now, reason)
