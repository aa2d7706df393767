"""The second phase of a safety run: faults stop, people finish their work, the fleet must come to rest."""

from dataclasses import replace

from slurm_lifecycle.core.fault_catalog import DrainedBy, fault_for
from slurm_lifecycle.core.model import Rung, Verb
from slurm_lifecycle.core.policy import Mode
from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.simulation.machines.bmc import BmcSettings
from slurm_lifecycle.simulation.machines.faults import HostEffect
from slurm_lifecycle.simulation.machines.hardware import Machine
from slurm_lifecycle.simulation.machines.provisioner import ProvisionerSettings
from slurm_lifecycle.simulation.safety.facts import spoken
from slurm_lifecycle.simulation.safety.happenings import RUNGS
from slurm_lifecycle.simulation.safety.journal import Case
from slurm_lifecycle.simulation.safety.oracles import Oracle
from slurm_lifecycle.simulation.safety.world import World

# A round is three ticks. A repair may take its whole deadline, several follow one another on a node, and
# where one node at a time may be worked on, node follows node.
ROUNDS, ROUNDS_A_NODE = 200, 20
TICKS_AT_REST = 12
_PACES_S = (10.0, 20.0, 60.0)


class Liveness(Oracle):
    """Faults stop: every node that can be repaired goes back, every other waits in RMA, the plan is empty."""

    name = "it comes to rest"


def stop_trouble(world: World) -> None:
    """Everything works from now on, and the daemon may do what it is meant to do."""
    world.resting = True
    world.troubles.stop()
    world.slurm.away = False
    world.slurm.odd.clear()
    world.slurm.unreadable.clear()
    world.slurm.moved.clear()
    world.desk.nobody_is_told = False
    world.clock.off_s = 0.0
    for name in sorted(world.ctld.reservations()):
        if name.startswith("maint"):
            world.hands.unreserve(name)
    world.machines.settings = replace(
        world.machines.settings, boot_lost=0.0, boot_late=0.0, prolog_fails=0.0, epilog_fails=0.0
    )
    world.fleet.bmcs.settings = BmcSettings()
    takes_s = world.fleet.provisioner.settings.takes_s
    world.fleet.provisioner.settings = ProvisionerSettings(takes_s=takes_s)
    for job_id in sorted(world.ctld.jobs()):
        world.hands.end_job(job_id)
    world.note("", "---- faults stop")
    rungs = RUNGS | {rung.value for rung in world.policy.effects & {Rung.POWER}}
    world.restart(replace(world.policy, mode=Mode.ACT, rungs=rungs, partitions=("*",), adopt_slurm=True))


def comes_to_rest(world: World, oracle: Oracle) -> None:
    """Both parts: what repairs can mend is mended; then technicians mend the rest, and all is in service."""
    if not _until(world, technicians=False):
        oracle.broken("", f"no rest while repairs go on: {_unrest(world)}")
    for node, why in _not_well(world):
        oracle.broken(node, why)
    oracle.judged += 1
    if world.facts.violations:
        return
    if not _until(world, technicians=True):
        oracle.broken("", f"no rest although everything was mended: {_unrest(world)}")
    oracle.judged += 1
    if world.facts.violations:
        return
    rows = world.journal.rows()
    for _ in range(TICKS_AT_REST):
        result = world.step(10.0)
        if result is None or not result.plan.settled:
            oracle.broken("", f"at rest, and yet: {result.plan if result is not None else 'no tick'}")
            return
    if world.journal.rows() != rows:
        oracle.broken("", f"at rest, and rows are written: {rows} -> {world.journal.rows()}")


def _until(world: World, *, technicians: bool) -> bool:
    calm = 0
    for number in range(ROUNDS + ROUNDS_A_NODE * len(world.ctld.views())):
        if number % 3 == 0:
            _people_act(world, technicians=technicians, number=number)
        result: TickResult | None = None
        for _ in range(3):
            result = world.step(world.rng.choice(_PACES_S))
            if world.facts.violations:
                return True
        settled = result is not None and result.plan.settled
        calm = calm + 1 if settled and _at_rest(world, technicians=technicians) else 0
        if calm >= 2:
            return True
    return False


def _people_act(world: World, *, technicians: bool, number: int) -> None:
    machines, hands = world.machines, world.hands
    for name in machines.names():
        machine = machines.machine(name)
        for key, fault in sorted(machine.faults.items()):
            # What comes and goes has gone, and a machine that lost its power or network gets it back.
            passing = not fault.shown or fault.kind.lasts_s is not None
            if passing or fault.kind.host is not HostEffect.NONE:
                machines.clear(name, key)
        if technicians and machine.faults:
            machines.replace_parts(name)
        if machine.stuck or not machine.powered:
            machines.power_cycle(name)
        elif machine.up and not machine.slurmd:
            machines.start_slurmd(name)
        if not machine.agent_starts:
            machine.agent_starts = True
        if machine.up and not machine.agent:
            world.agents.revive(name)
        if number % 9 == 0:
            _look_at_the_odd(world, machine)
        if world.facts.persons(name):
            hands.give_back(name, "RESUME" if "DOWN" in world.ctld.view(name).state else "UNDRAIN")
    for job_id in sorted(world.ctld.jobs()):
        hands.end_job(job_id)
    if number % 2 == 0:
        _people_let_go(world)


def _look_at_the_odd(world: World, machine: Machine) -> None:
    """Where a node runs and Slurm does not know it, slurmd is restarted, or the reboot is ended by hand."""
    name, state = machine.name, world.ctld.view(machine.name).state
    if not (machine.up and machine.slurmd) or machine.booting is not None:
        return
    gpus_are_back = "INVALID_REG" in state and not world.machines.faulty(name)
    if gpus_are_back or ("NOT_RESPONDING" in state and machine.reachable):
        world.machines.stop_slurmd(name)
        world.machines.start_slurmd(name)
    elif "REBOOT_ISSUED" in state and "INVALID_REG" not in state:
        world.hands.give_back(name, "RESUME")


def _people_let_go(world: World) -> None:
    """Whoever is called looks, and lets go what is well; what is broken waits for a part."""
    cases = world.journal.open_cases()
    for node in sorted(world.journal.holds()):
        world.hands.ask(Verb.RELEASE, node)
    for node, case in cases.items():
        waits = case.step in ("held", "awaiting_person") and case.hold != "foreign"
        if node not in world.machines:
            world.hands.ask(Verb.RELEASE, node)
        elif waits and not world.machines.faulty(node):
            _let_go(world, node)
    if world.journal.trips():
        world.hands.ask(Verb.BREAKER_RESET, "")


def _let_go(world: World, node: str) -> None:
    """A node that is well goes on; what its agent has seen may need one more boot to be gone."""
    said = spoken(world.ctld.view(node))
    if said is not None and said.level == "drain" and world.machines.machine(node).up:
        world.machines.power_cycle(node)
    else:
        world.hands.ask(Verb.RELEASE, node)


def _at_rest(world: World, *, technicians: bool) -> bool:
    cases = world.journal.open_cases()
    if world.journal.trips() or world.journal.holds():
        return False
    if technicians:
        return not cases and all(world.ctld.in_service(node) for node in world.ctld.views())
    in_rma = {node for node, case in cases.items() if _in_rma(world, node, case)}
    # Slurm does not let a node go whose GPUs are missing, whoever drained it.
    in_rma |= {node for node in world.machines.names() if _persons_and_broken(world, node)}
    # Nodes that wait for a part may take all places of those that may be out: then other faults of classes
    # with a common cause wait in service for the technicians.
    waiting = {node for node, case in cases.items() if in_rma and _waits_for_a_place(case)}
    out = {node for node in world.ctld.views() if not world.ctld.in_service(node)}
    return out <= in_rma and set(cases) <= in_rma | waiting


def _persons_and_broken(world: World, node: str) -> bool:
    refused = "INVALID_REG" in world.ctld.view(node).state
    return refused and world.machines.faulty(node) and world.facts.persons(node)


def _waits_for_a_place(case: Case) -> bool:
    common = fault_for(case.code).drained_by is not DrainedBy.NODE
    return common and case.step == "draining"


def _in_rma(world: World, node: str, case: Case | None) -> bool:
    """It waits for a part, and is broken indeed."""
    waits = case is not None and case.step in ("awaiting_person", "held") and case.hold != "foreign"
    return waits and node in world.machines and world.machines.faulty(node)


def _not_well(world: World) -> list[tuple[str, str]]:
    """Nodes that wait for a part without a ticket although their ladder ends with one."""
    found = []
    ticketed = {facts.node for facts in world.told.tickets.values()}
    for node, case in world.journal.open_cases().items():
        if not _in_rma(world, node, case):
            continue
        tries = world.journal.tries_of(case.id)
        wrote = any(one.rung in ("rma", "reseat") and one.outcome == "succeeded" for one in tries)
        if wrote and node not in ticketed:
            found.append((node, f"{case.id} waits for a part without a ticket"))
        if not wrote and not any(case.id in key for key in world.told.pages):
            found.append((node, f"{case.id} waits for a part, and nobody was told"))
    return found


def _unrest(world: World) -> str:
    views = world.ctld.views()
    out = [
        f"{name} {'+'.join(sorted(views[name].state))}" for name in views if not world.ctld.in_service(name)
    ]
    cases = [f"{one.id} {one.step} {one.hold}" for one in world.journal.open_cases().values()]
    return f"nodes {out}, cases {cases}, trips {world.journal.trips()}, holds {sorted(world.journal.holds())}"
