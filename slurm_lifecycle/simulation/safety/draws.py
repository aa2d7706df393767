"""What a seed of the safety suite draws: the fleet, its Slurm, its hardware, the policy, the oracles."""

import random
from dataclasses import dataclass, replace

from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.core.policy import BreakerPolicy, Budget, Cap, Mode, Policy
from slurm_lifecycle.simulation.fleet import FleetSettings
from slurm_lifecycle.simulation.machines.agent import AgentSettings
from slurm_lifecycle.simulation.machines.bmc import BmcSettings
from slurm_lifecycle.simulation.machines.machine import MachineSettings
from slurm_lifecycle.simulation.machines.provisioner import ProvisionerSettings
from slurm_lifecycle.simulation.safety.happenings import RUNGS, Weights
from slurm_lifecycle.simulation.safety.oracles_effects import (
    BreakerStops,
    Caps,
    DrainedAndFenced,
    FenceLast,
    ForeignDrain,
    FreshLook,
    IdleNode,
    JournalFirst,
    OnlyItsOwn,
    Permission,
    RightWord,
)
from slurm_lifecycle.simulation.safety.oracles_limits import (
    BreakerTrips,
    Memory,
    OutBudget,
    PersonsWord,
    WorkingBudget,
    WorkNow,
)
from slurm_lifecycle.simulation.safety.oracles_power import PowerGivenBack
from slurm_lifecycle.simulation.safety.oracles_record import (
    Agreement,
    Deadlines,
    IncidentsLast,
    PersonsAreTold,
    PlanAccepted,
)
from slurm_lifecycle.simulation.safety.oracles_service import (
    Checked,
    ProvenSuccess,
    ReturnsGoOn,
    SeenInService,
)
from slurm_lifecycle.simulation.slurmctld import RELEASES, NodeSpec, SlurmConf
from slurm_lifecycle.simulation.streams import stream

ORACLES = (
    IdleNode,
    DrainedAndFenced,
    ForeignDrain,
    JournalFirst,
    Caps,
    FreshLook,
    RightWord,
    OnlyItsOwn,
    Permission,
    FenceLast,
    BreakerStops,
    BreakerTrips,
    WorkingBudget,
    WorkNow,
    OutBudget,
    Memory,
    PersonsWord,
    Checked,
    SeenInService,
    ReturnsGoOn,
    ProvenSuccess,
    PowerGivenBack,
    IncidentsLast,
    Deadlines,
    PersonsAreTold,
    Agreement,
    PlanAccepted,
)


@dataclass(frozen=True, slots=True)
class Draws:
    """Everything that is drawn once for a world."""

    fleet: FleetSettings
    domains: tuple[str, ...]
    partitions: tuple[str, ...]
    policy: Policy
    weights: Weights

    @classmethod
    def of(cls, seed: int) -> "Draws":
        """Each part from a stream of its own."""
        rng = stream(seed, "world", "fleet")
        count = rng.choice((3, 3, 4, 4, 5, 6, 6, 8, 9, 12, 20, 40))
        domains = tuple(f"rack{number}" for number in range(rng.randint(2, 5)))
        partitions = tuple(("batch", "long", "test")[: rng.randint(1, 3)])
        nodes = tuple(
            NodeSpec(
                name=f"n{number:02d}",
                partitions=_partitions(rng, partitions),
                gpus=8,
                domain=domains[number % len(domains)],
            )
            for number in range(1, count + 1)
        )
        boot_s = rng.choice((20.0, 120.0, 300.0))
        bad = stream(seed, "world", "hardware")
        fleet = FleetSettings(
            nodes=nodes,
            slurm=_slurm(stream(seed, "world", "slurm"), boot_s),
            machines=MachineSettings(
                boot_s=boot_s,
                boot_lost=bad.choice((0.0, 0.0, 0.1)),
                boot_late=bad.choice((0.0, 0.1, 0.3)),
                prolog_fails=bad.choice((0.0, 0.0, 0.02)),
                epilog_fails=bad.choice((0.0, 0.0, 0.02)),
            ),
            agents=AgentSettings(dead_at_boot=bad.choice((0.0, 0.0, 0.1)), drains=bad.random() < 0.8),
            bmcs=BmcSettings(
                hangs=bad.choice((0.0, 0.1)),
                slow=bad.choice((0.0, 0.2)),
                lies=bad.choice((0.0, 0.1)),
                deaf=bad.choice((0.0, 0.1)),
            ),
            provisioner=_provisioner(stream(seed, "world", "provisioner"), boot_s),
        )
        policy = _policy(seed, nodes, partitions)
        return cls(fleet, domains, partitions, policy, Weights.drawn(stream(seed, "world", "weights")))


def _partitions(rng: random.Random, partitions: tuple[str, ...]) -> tuple[str, ...]:
    also = tuple(one for one in partitions[1:] if rng.random() < 0.3)
    return (partitions[0], *also) if rng.random() < 0.8 else (rng.choice(partitions),)


def _slurm(rng: random.Random, boot_s: float) -> SlurmConf:
    return SlurmConf(
        release=rng.choice(("22.05", *sorted(RELEASES))),
        resume_timeout_s=rng.choice((2.0 * boot_s + 60.0, 700.0, 2000.0, 4000.0)),
        slurmd_timeout_s=rng.choice((60.0, 300.0)),
        return_to_service=rng.choice((0, 1, 2)),
        kill_wait_s=rng.choice((5.0, 30.0)),
    )


def _provisioner(rng: random.Random, boot_s: float) -> ProvisionerSettings:
    bad = rng.choice((0.0, 0.1))
    return ProvisionerSettings(
        takes_s=rng.choice((1.0, 4.0)) * boot_s,
        gives_up_s=20.0 * boot_s,
        fails=bad,
        never_ends=bad,
        without_boot=bad,
        unknown=bad,
        refuses=bad,
        not_now=bad,
    )


def _policy(seed: int, nodes: tuple[NodeSpec, ...], partitions: tuple[str, ...]) -> Policy:
    rng = stream(seed, "world", "policy")
    lemons = rng.choice((3, 99))
    caps = rng.choice(
        (
            Policy().caps,
            {Rung.REBOOT: (Cap(1, 600.0),), Rung.REIMAGE: (Cap(1, 1800.0),)},
            {Rung.REBOOT: (Cap(2, 900.0), Cap(3, 86400.0)), Rung.REIMAGE: (Cap(2, 3600.0),)},
        )
    )
    pace = rng.choice((0.2, 0.5, 1.0))
    paths = {
        key: tuple(replace(rule, deadline_s=rule.deadline_s * pace) for rule in rules)
        for key, rules in Policy().paths.items()
    }
    domains = {spec.name: spec.domain for spec in nodes}
    first = min(domains.values())
    bmc = stream(seed, "world", "machines").choice((frozenset(), frozenset(domains)))
    return Policy(
        mode=Mode.ACT,
        partitions=("*",) if rng.random() < 0.8 else partitions[: rng.randint(1, len(partitions))],
        rungs=RUNGS | ({Rung.POWER.value} if bmc else frozenset()),
        effects=Policy().effects | ({Rung.POWER} if bmc else frozenset()),
        bmc=bmc,
        paths=paths,
        caps=caps,
        fleet=Budget(rng.choice((2, 4, 8, None)), rng.choice((1, 2, 4, None))),
        partition_budgets={partitions[-1]: Budget(rng.choice((1, 3)), rng.choice((1, 2)))},
        domains=domains,
        domain_budgets={first: Budget(rng.choice((None, 1)), 1)},
        breaker=BreakerPolicy(least=rng.choice((2, 3, 5, 50)), most=50),
        adopt_slurm=rng.random() < 0.8,
        adopt_after_s=rng.choice((60.0, 120.0)),
        adopt_tools=rng.choice(((), ("NHC:",))),
        drain_deadline_s=rng.choice((600.0, 2000.0, 86400.0)),
        verify_deadline_s=rng.choice((120.0, 600.0, 1200.0)),
        verify_settle_s=rng.choice((15.0, 30.0, 90.0)),
        return_deadline_s=rng.choice((120.0, 600.0)),
        lemon_7d=lemons,
        lemon_28d=lemons,
        page_busy_after_s=rng.choice((300.0, 1800.0)),
    )
