"""The claim on the cluster stands on the first node that can be read, whatever becomes of that node."""

from dataclasses import replace

from slurm_lifecycle.core.formats import parse_claim
from slurm_lifecycle.core.model import Identity, NodeView
from slurm_lifecycle.core.ownership import UNREADABLE
from slurm_lifecycle.core.plan import SetComment

from .world import World


def claims(world: World) -> dict[str, int]:
    found = {name: parse_claim(view.comment) for name, view in world.nodes.items()}
    return {name: claim.generation for name, claim in found.items() if claim is not None}


def test_an_unreadable_first_node_neither_stops_the_fleet_nor_loses_its_comment() -> None:
    world = World()
    hidden = replace(world.nodes["n1"], comment="rack=12\n   Reason=a text that cannot be told apart")
    world.nodes["n1"] = NodeView("n1", frozenset({UNREADABLE}))
    world.fault("n3", "XID79")
    world.run_until(lambda w: bool(w.records.closed_incidents))
    assert not world.sent(SetComment, "n1")
    assert claims(world) == {"n2": 1}
    world.nodes["n1"] = replace(hidden, comment="rack=12")
    world.tick(3)
    assert world.nodes["n1"].comment.startswith("rack=12 slcd[")
    assert world.tick().settled


def test_no_readable_node_is_no_action() -> None:
    world = World(count=1)
    world.nodes["n1"] = NodeView("n1", frozenset({UNREADABLE}))
    assert world.tick().not_acting == "no node can be read"


def test_a_claim_on_another_node_than_the_first_binds_as_well() -> None:
    world = World()
    world.nodes["n1"] = NodeView("n1", frozenset({UNREADABLE}))
    world.tick(2)
    world.identity = Identity("inst2", "other", 9)
    world.fault("n4", "XID79")
    world.log.clear()
    world.tick(5)
    assert "claimed by instance inst1" in world.last.not_acting
    assert not world.log
