"""Which of the nodes' words have to be written: a fleet at rest writes none of them."""

from slurm_lifecycle.core.plan import NodeStatus

Statuses = tuple[NodeStatus, ...]


def status_changes(stored: Statuses, told: Statuses) -> tuple[Statuses, tuple[str, ...]]:
    """What differs, and which nodes are gone.

    A fleet changes seldom and little: nearly always the same nodes stand in the same places, and a node in
    service is told of by the very same value as before.

    Args:
        stored: as written last.
        told: as a plan has it now; nothing is gone where it tells of no node at all.
    """
    if len(stored) == len(told):
        pairs = [(old, new) for old, new in zip(stored, told, strict=True) if old is not new and old != new]
        if all(old.node == new.node for old, new in pairs):
            return tuple(new for _, new in pairs), ()
    known = {one.node: one for one in stored}
    present = {one.node for one in told}
    gone = tuple(node for node in known if node not in present) if told else ()
    return tuple(one for one in told if known.get(one.node) != one), gone
