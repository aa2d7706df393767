"""One pass over all nodes that finds the few that anything can be decided about.

Nearly every node of a fleet is in service, says nothing bad of itself and bears no mark: for such a node the
planner has nothing to do, whatever the policy says. What costs time is done for the others alone, so that a
tick over 16,384 nodes takes little longer than this pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_lifecycle.core.fault_catalog import Level
from slurm_lifecycle.core.formats import CLAIM_OPENS, MARK_OPENS, parse_verdict
from slurm_lifecycle.core.model import NodeView
from slurm_lifecycle.core.ownership import IN_SERVICE_TOKENS


@dataclass(frozen=True, slots=True)
class Survey:
    """Which nodes need a look.

    Attributes:
        names: all nodes, in order.
        restless: nodes that are not plainly in service, or whose verdict is not good. Any other node needs a
            decision only where something is on record about it.
        marked: nodes whose Comment bears a mark of a daemon, in order.
        claimed: nodes whose Comment bears a daemon's claim on the cluster, in order.
    """

    names: tuple[str, ...] = ()
    restless: frozenset[str] = frozenset()
    marked: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()

    @classmethod
    def of(cls, nodes: Mapping[str, NodeView]) -> "Survey":
        """Look at every node once; the one loop of the planner in which each operation counts."""
        restless, marked, claimed = [], [], []
        good, in_service = Level.OK, IN_SERVICE_TOKENS
        for name, view in nodes.items():
            comment = view.comment
            if comment:
                if MARK_OPENS in comment:
                    marked.append(name)
                if CLAIM_OPENS in comment:
                    claimed.append(name)
            verdict = parse_verdict(view.extra)
            speaks_well = verdict is None or verdict.level is good
            if not (speaks_well and view.state and view.state <= in_service):
                restless.append(name)
        return cls(tuple(sorted(nodes)), frozenset(restless), tuple(sorted(marked)), tuple(sorted(claimed)))
