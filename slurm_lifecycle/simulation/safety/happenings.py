"""What may happen in a world of the safety suite, one thing a step, with its weight."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_lifecycle.core.model import Rung, Verb
from slurm_lifecycle.core.policy import Mode
from slurm_lifecycle.simulation.machines.faults import KINDS, kinds_of_code
from slurm_lifecycle.simulation.slurmctld import JobSpec, NodeSpec

if TYPE_CHECKING:
    from slurm_lifecycle.simulation.safety.world import World

RUNGS = frozenset({"drain", "return", "reboot", "reimage", "rma"})
SLURM_SAYS = ("Kill task failed", "Prolog error", "Duplicate jobid", "Epilog error")
PERSONS_SAY = ("fan noise", "ticket 4711: swap DIMM", "do not touch")
TOOL_SAYS = "NHC: check_fs_mount: /scratch not mounted"
ODD_STATES = ("POWERED_DOWN", "UNKNOWN", "FUTURE")
COMMON = ("driver_mismatch", "driver_down", "root_read_only")
# Larger steps of the wall clock are not believed by the daemon.
SLEW_S = 3.0
STEP_S = (3600.0, -3600.0, 86400.0)
_KINDS = tuple(sorted(KINDS))

Happening = tuple[float, str, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Weights:
    """Which kinds of happenings are frequent in this run, drawn by its seed.

    Attributes:
        faults, jobs, people, hosts, service, site: by what they concern; 0 where that kind is off.
    """

    faults: float
    jobs: float
    people: float
    hosts: float
    service: float
    site: float

    @classmethod
    def drawn(cls, rng: random.Random) -> "Weights":
        """Some off, some strong."""
        return cls(
            faults=rng.choice((0.5, 1.0, 1.0, 2.0)),
            jobs=rng.choice((0.0, 1.0, 1.0)),
            people=rng.choice((0.0, 0.5, 1.0)),
            hosts=rng.choice((0.0, 0.5, 1.0)),
            service=rng.choice((0.0, 1.0, 1.0)),
            site=rng.choice((0.0, 0.5, 1.0)),
        )


def happen(world: "World", *, between: bool = False) -> None:
    """One thing happens to one node or around it, or nothing.

    Args:
        between: the daemon is in the middle of a tick: its own restarts cannot happen now.
    """
    rng = world.rng
    names = sorted(world.ctld.views())
    if not names:
        return
    node, weights = rng.choice(names), world.weights
    choices: list[Happening] = [(25.0, "", _nothing)]
    makers = [
        (weights.faults, _faults),
        (weights.jobs, _jobs),
        (weights.people, _people),
        (weights.hosts, _hosts),
    ]
    if not between:
        makers += [(weights.service, _service), (weights.site, _site)]
    for share, maker in makers:
        if share:
            choices += [(weight * share, text, act) for weight, text, act in maker(world, node) if weight]
    _, text, act = rng.choices(choices, [one[0] for one in choices])[0]
    if text:
        world.happened[text] = world.happened.get(text, 0) + 1
        world.note(node, text)
    act()


def _nothing() -> None:
    pass


def _faults(world: "World", node: str) -> list[Happening]:
    rng, machines = world.rng, world.machines
    machine = machines.machine(node)

    def strike() -> None:
        machines.fault(node, KINDS[rng.choice(_KINDS)], rng.choice(("", "gpu0", "gpu1")))

    def many() -> None:
        kind = KINDS[rng.choice(COMMON)]
        domain = rng.choice(("", machine.domain))
        for name in sorted(world.ctld.views()):
            if not domain or machines.machine(name).domain == domain:
                machines.fault(name, kind)

    def again() -> None:
        last = world.last_kind.get(node)
        if last is not None:
            machines.fault(node, KINDS[last[0]], last[1])

    def relapse() -> None:
        # A node that went back comes down with the very same again.
        back = [one for one in world.journal.returned() if one.node in machines]
        if back:
            case = rng.choice(back[-6:])
            kinds = kinds_of_code(case.code)
            if kinds:
                machines.fault(case.node, kinds[0], case.component)

    def goes() -> None:
        for key in sorted(machine.faults)[:1]:
            machines.clear(node, key)

    return [
        (6, "a fault", strike),
        (4 if node in world.last_kind else 0, "the fault of the last time", again),
        (3, "a fault comes back", relapse),
        (1.5, "many fail", many),
        (4 if machine.faults else 0, "a fault goes", goes),
    ]


def _jobs(world: "World", node: str) -> list[Happening]:
    rng, hands, ctld = world.rng, world.hands, world.ctld

    def submit() -> None:
        least = rng.choice((1, 1, 1, 2, 3))
        hands.submit(
            JobSpec(
                name="job",
                nodes_min=least,
                nodes_max=least + rng.choice((0, 0, 2)),
                time_limit_s=rng.choice((600.0, 3600.0, 86400.0)),
                partition=rng.choice(world.partitions),
                requeue=rng.random() < 0.7,
                nodelist=(node,) if rng.random() < 0.2 else (),
                ignores_term=rng.random() < 0.2,
            )
        )

    def flip() -> None:
        for job in list(ctld.jobs().values()):
            if node in job.nodes:
                act = ctld.resume_job if job.state == "SUSPENDED" else ctld.suspend
                hands.to_jobs_on(node, act)
                return

    return [
        (12, "a job is submitted", submit),
        (8, "jobs end", lambda: hands.to_jobs_on(node, lambda one: ctld.job_exits(one, "completed"))),
        (2, "jobs are cancelled", lambda: hands.to_jobs_on(node, ctld.cancel)),
        (2, "jobs are requeued", lambda: hands.to_jobs_on(node, ctld.requeue)),
        (3, "jobs are suspended or go on", flip),
    ]


def _people(world: "World", node: str) -> list[Happening]:
    rng, hands = world.rng, world.hands
    view = world.ctld.view(node)
    drained, down = "DRAIN" in view.state, "DOWN" in view.state
    text = rng.choice(PERSONS_SAY)

    cases = world.journal.open_cases()

    def request() -> None:
        concerned = rng.choice(sorted(cases)) if cases else node
        codes = [one.code for one in cases.values()][:1]
        subjects = (node, concerned, concerned, concerned, "fleet", "", "nosuch", *codes)
        hands.ask(rng.choice((*Verb, Verb.HOLD, Verb.RELEASE, Verb.REMEDIATE)), rng.choice(subjects))

    waiting = [
        name
        for name, case in sorted(cases.items())
        if case.step in ("awaiting_person", "held") and case.hold != "foreign" and name in world.machines
    ]

    def mend() -> None:
        name = rng.choice(waiting)
        # Now and then the agent does not come up with the node, and nobody looks.
        world.machines.machine(name).agent_starts = rng.random() < 0.7
        world.machines.replace_parts(name)
        after_s = rng.choice((0.5, 1.5, 4.0)) * world.machines.settings.boot_s
        world.timeline.after(after_s, lambda: None if world.resting else hands.ask(Verb.RELEASE, name))

    return [
        (2, "a person drains", lambda: hands.drain(node, text)),
        (0.5, "a person sets DOWN", lambda: hands.down(node, text)),
        (1 if drained else 0, "a person takes a drain over", lambda: hands.take_over(node, text)),
        (4 if drained else 0, "a person undrains", lambda: hands.give_back(node, "UNDRAIN")),
        (2 if drained or down else 0, "a person resumes", lambda: hands.give_back(node, "RESUME")),
        (0.3 if drained or down else 0, "a person sets IDLE", lambda: hands.give_back(node, "IDLE")),
        (5, "a person asks", request),
        (4 if waiting else 0, "a technician mends", mend),
        (
            2 if drained else 0.3,
            "a person reboots",
            lambda: hands.reboot(
                node, asap=rng.random() < 0.5, nextstate=rng.choice(("", "", "RESUME", "DOWN"))
            ),
        ),
        (
            0.2 if "REBOOT_REQUESTED" in view.state else 0,
            "a reboot is cancelled",
            lambda: hands.cancel_reboot(node),
        ),
        (
            0.4,
            "maintenance",
            lambda: hands.reserve(f"maint{rng.randrange(3)}", (node,), rng.choice((60.0, 900.0))),
        ),
        (0.6, "maintenance ends", lambda: hands.unreserve(f"maint{rng.randrange(3)}")),
        (
            0 if "rack=12" in view.comment else 1,
            "a foreign Comment",
            lambda: hands.add_to_comment(node, "rack=12"),
        ),
    ]


def _hosts(world: "World", node: str) -> list[Happening]:
    rng, machines = world.rng, world.machines
    machine = machines.machine(node)

    def agent() -> None:
        machine.agent_starts = not machine.agent_starts
        if machine.agent_starts:
            world.agents.revive(node)
        else:
            world.agents.kill(node)

    def tool() -> None:
        drains = world.hands.slurm_drains if world.policy.adopt_tools else world.hands.drain
        drains(node, TOOL_SAYS)

    return [
        (1.5 if machine.up else 0, "a host dies", lambda: machines.crash(node)),
        (
            4 if machine.stuck or not machine.powered else 0,
            "power is cycled",
            lambda: machines.power_cycle(node),
        ),
        (1 if machine.up else 0, "a host reboots by itself", lambda: machines.self_reboot(node)),
        (1 if machine.slurmd else 0, "slurmd dies", lambda: machines.stop_slurmd(node)),
        (6 if machine.up and not machine.slurmd else 0, "slurmd starts", lambda: machines.start_slurmd(node)),
        (2, "the agent dies or starts", agent),
        (0.5, "another tool drains", tool),
        (2, "Slurm drains", lambda: world.hands.slurm_drains(node, rng.choice(SLURM_SAYS))),
    ]


def _service(world: "World", node: str) -> list[Happening]:
    rng, slurm = world.rng, world.slurm

    def put(what: object, key: str, value: object) -> Callable[[], None]:
        return lambda: setattr(what, key, value)

    def odd() -> None:
        if slurm.odd.pop(node, None) is None:
            slurm.odd[node] = rng.choice(ODD_STATES)

    def configure() -> None:
        without = rng.choice(("", "", "", "drain", "return", "reboot", "reimage", "rma"))
        mode = rng.choice((Mode.ACT, Mode.ACT, Mode.ACT, Mode.OBSERVE))
        rungs = RUNGS | {rung.value for rung in world.policy.effects & {Rung.POWER}}
        world.restart(replace(world.policy, mode=mode, rungs=rungs - {without}))

    clock = world.clock
    return [
        (2, "the daemon is restarted", world.restart),
        (1, "slurmctld is away or back", put(slurm, "away", not slurm.away)),
        (2 if slurm.away else 0, "slurmctld is back", put(slurm, "away", False)),
        (1, "a node shows an odd state, or no more", odd),
        (
            1,
            "a record cannot be read, or can again",
            lambda: slurm.unreadable.symmetric_difference_update({node}),
        ),
        (1, "slurmctld is restarted", world.ctld.restart),
        (2, "people can be told, or not", put(world.desk, "nobody_is_told", rng.random() < 0.5)),
        (2, "the clock is slewed", put(clock, "off_s", rng.choice((0.0, SLEW_S, -SLEW_S)))),
        (0.7, "the clock steps", put(clock, "off_s", rng.choice(STEP_S))),
        (1, "the configuration changes", configure),
    ]


def _site(world: "World", node: str) -> list[Happening]:
    rng, ctld = world.rng, world.ctld

    def join() -> None:
        name = f"{rng.choice('amz')}{rng.randrange(9)}"
        if name not in ctld.views():
            spec = NodeSpec(name, (rng.choice(world.partitions),), 8, rng.choice(world.domains))
            world.join(spec)

    def move() -> None:
        world.facts.nodes_were_moved = True
        world.slurm.moved[node] = rng.choice((("batch",), ("batch", "x"), ()))

    def reconfigure() -> None:
        ctld.reconfigure(return_to_service=rng.choice((0, 1, 2)))

    return [
        (0.3 if len(ctld.views()) > 2 else 0, "a node leaves", lambda: world.leave(node)),
        (0.8, "a node joins", join),
        (0.3, "a node is moved to other partitions", move),
        (0.3, "ReturnToService changes", reconfigure),
    ]
