"""A slurmctld in virtual time, with the manners of four releases of Slurm."""

from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.slurmctld.records import Job
from slurm_lifecycle.simulation.slurmctld.release import RELEASES, Release
from slurm_lifecycle.simulation.slurmctld.settings import (
    JobSpec,
    NodeSide,
    NodeSpec,
    SlurmConf,
    SlurmRefused,
)

__all__ = [
    "RELEASES",
    "Job",
    "JobSpec",
    "NodeSide",
    "NodeSpec",
    "Release",
    "SlurmConf",
    "SlurmRefused",
    "Slurmctld",
]
