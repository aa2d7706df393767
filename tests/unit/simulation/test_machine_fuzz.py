"""Whatever is done to machines, in any order: what is true of them fits together, and parts mend them."""

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from slurm_lifecycle.simulation.fleet import Fleet, FleetSettings
from slurm_lifecycle.simulation.machines.agent import AgentSettings
from slurm_lifecycle.simulation.machines.arrivals import driver_rollout, power_loss, switch_loss
from slurm_lifecycle.simulation.machines.bmc import BmcSettings
from slurm_lifecycle.simulation.machines.faults import KINDS, HostEffect, SeenBy
from slurm_lifecycle.simulation.machines.hardware import MachineSettings
from slurm_lifecycle.simulation.machines.provisioner import ProvisionerSettings
from slurm_lifecycle.simulation.slurmctld.settings import JobSpec, NodeSpec, SlurmConf, SlurmRefused

SETTINGS = FleetSettings(
    tuple(NodeSpec(f"n{number}", domain=f"rack{number % 2}") for number in range(1, 5)),
    SlurmConf(resume_timeout_s=300.0, slurmd_timeout_s=60.0),
    MachineSettings(30.0, 0.3, 3.0, boot_lost=0.1, boot_late=0.1, prolog_fails=0.05, first_step_s=5.0),
    AgentSettings(dead_at_boot=0.1),
    BmcSettings(slow=0.2, hangs=0.1, lies=0.1, deaf=0.2),
    ProvisionerSettings(120.0, fails=0.2, never_ends=0.1, without_boot=0.1, unknown=0.1, gives_up_s=600.0),
)

# The others end with what caused them, not with anything that is done to a node.
OF_NODES = sorted(kind.key for kind in KINDS.values() if kind.count and kind.seen_by is not SeenBy.PERSON)


def check(fleet: Fleet) -> None:
    machines = fleet.machines
    for name in machines.names():
        machine = machines.machine(name)
        runs = (machine.up, machine.booting is not None, machine.installing, machine.stuck)
        assert sum(runs) <= 1, machine
        assert machine.powered or not any(runs), machine
        assert machine.up or not (machine.slurmd or machine.agent), machine
        assert machines.usable(name) <= machines.responds(name)
        dead = any(one.shown and one.kind.host is HostEffect.DIES for one in machine.faults.values())
        assert not (dead and machine.up), machine
        for key, fault in machine.faults.items():
            assert key == fault.key
            assert fault.cleared_at is None


def hands(fleet: Fleet, rng: random.Random) -> list[Callable[[], object]]:
    machines, ctld, name = fleet.machines, fleet.ctld, rng.choice(fleet.machines.names())
    now = fleet.timeline.now
    return [
        lambda: machines.fault(name, KINDS[rng.choice(OF_NODES)]),
        lambda: machines.fault(name, KINDS[rng.choice(("psu_dead", "nic_dead", "cpu_machine_check"))]),
        lambda: machines.crash(name),
        lambda: machines.self_reboot(name) if machines.machine(name).up else None,
        lambda: machines.power_off(name),
        lambda: machines.power_on(name),
        lambda: machines.power_cycle(name),
        lambda: machines.replace_parts(name),
        lambda: machines.stop_slurmd(name),
        lambda: machines.start_slurmd(name),
        lambda: fleet.agents.kill(name),
        lambda: fleet.agents.revive(name),
        lambda: fleet.agents.false_alarm(name, "GPU_LOST", "gpu7", 50.0),
        lambda: fleet.provisioner.start(name, "default", f"op{rng.random()}"),
        lambda: power_loss(machines, [name, "n1"], now, rng.choice((10.0, 500.0))),
        lambda: switch_loss(machines, [name, "n2"], now, rng.choice((10.0, 500.0))),
        lambda: driver_rollout(machines, ["n1", "n2", "n3"], 0.5, at=now, within_s=60.0, mended_at=now + 90),
        lambda: ctld.reboot(name),
        lambda: ctld.update_node(name, rng.choice(("DRAIN", "UNDRAIN", "RESUME", "DOWN")), "because"),
        lambda: ctld.submit(JobSpec("j", nodes_min=1, nodes_max=rng.choice((1, 3)))),
        lambda: machines.remove("n4") if "n4" in machines else machines.add(NodeSpec("n4")),
    ]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_true_fits_together_and_parts_mend_everything(seed: int) -> None:
    rng = random.Random(seed)
    fleet = Fleet(SETTINGS, seed)
    for _ in range(120):
        with contextlib.suppress(SlurmRefused):
            rng.choice(hands(fleet, rng))()
        check(fleet)
        fleet.timeline.run_until(fleet.timeline.now + rng.choice((0.0, 1.0, 10.0, 40.0, 200.0)))
        check(fleet)
    fleet.timeline.run_until(fleet.timeline.now + 2000)
    # A reboot that waits for its node is made when that is back, and must not be lost then.
    fleet.machines.settings = replace(SETTINGS.machines, boot_lost=0.0, boot_late=0.0)
    for name in fleet.machines.names():
        fleet.machines.replace_parts(name)
        fleet.agents.follow(fleet.machines.machine(name))
    fleet.timeline.run_until(fleet.timeline.now + 500)
    for name in fleet.machines.names():
        check(fleet)
        assert fleet.machines.usable(name), fleet.machines.machine(name)
        assert "NOT_RESPONDING" not in fleet.ctld.view(name).state
