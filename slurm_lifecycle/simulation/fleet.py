"""A simulated fleet, put together: slurmctld, machines, agents, reimages, a desk for tickets and pages."""

from dataclasses import dataclass, field

from slurm_lifecycle.simulation.desk import Desk
from slurm_lifecycle.simulation.machines.agent import AgentSettings, NodeAgents
from slurm_lifecycle.simulation.machines.bmc import Bmcs, BmcSettings
from slurm_lifecycle.simulation.machines.bmc_port import SimBmc
from slurm_lifecycle.simulation.machines.hardware import MachineSettings
from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.machines.provisioner import ProvisionerSettings, SimProvisioner
from slurm_lifecycle.simulation.port import SimSlurm
from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.slurmctld.settings import NodeSpec, SlurmConf
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """What a fleet is made of."""

    nodes: tuple[NodeSpec, ...]
    slurm: SlurmConf = field(default_factory=SlurmConf)
    machines: MachineSettings = field(default_factory=MachineSettings)
    agents: AgentSettings = field(default_factory=AgentSettings)
    bmcs: BmcSettings = field(default_factory=BmcSettings)
    provisioner: ProvisionerSettings = field(default_factory=ProvisionerSettings)


class Fleet:
    """Everything but the daemon, its people and its jobs; all of it on one timeline.

    Attributes:
        slurm, provisioner, bmc, desk: the ports as they are without trouble.
    """

    def __init__(self, settings: FleetSettings, seed: int | str) -> None:
        """All machines run, all agents have said that all is well."""
        self.seed = seed
        self.timeline = Timeline()
        self.ctld = Slurmctld(
            self.timeline, settings.nodes, settings.slurm, stream(seed, "slurmctld", "timing")
        )
        self.machines = Machines(self.timeline, self.ctld, settings.nodes, settings.machines, seed)
        self.ctld.side = self.machines
        self.ctld.on_job_start.append(self.machines.job_started)
        self.agents = NodeAgents(self.machines, self.ctld, settings.agents)
        self.bmcs = Bmcs(self.machines, settings.bmcs)
        self.bmc = SimBmc(self.machines, self.bmcs)
        self.provisioner = SimProvisioner(self.machines, self.bmcs, settings.provisioner)
        self.slurm = SimSlurm(self.ctld)
        self.desk = Desk()
        self.machines.start()
        self.agents.start()
