"""What stands in for the BMCs of a site that configured none."""

from collections.abc import Collection, Mapping

from slurm_lifecycle.core.machine import (
    BmcProblem,
    HealthReport,
    MachineCommand,
    MachineReading,
    StepOutcome,
)
from slurm_lifecycle.ports import Sent

_WHY = "no BMC is configured: set [bmc] file in the configuration"


class WithoutBmc:
    """Implements `ports.Bmc` and `ports.MachineHealth`: knows no machine and does nothing."""

    def read(self, nodes: Collection[str], deadline_s: float) -> Mapping[str, MachineReading]:
        """A reading without anything for each."""
        del deadline_s
        return {
            node: MachineReading(node, 0.0, problem=BmcProblem.NOT_CONFIGURED, detail=_WHY) for node in nodes
        }

    def send(self, commands: Mapping[str, MachineCommand], deadline_s: float) -> Mapping[str, Sent]:
        """Nothing is sent."""
        del deadline_s
        return dict.fromkeys(commands, Sent(StepOutcome.UNSUPPORTED, _WHY))

    def reports(self) -> Mapping[str, HealthReport]:
        """None."""
        return {}
