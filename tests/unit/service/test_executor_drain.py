"""The executor's drain of a node that is ours already."""

from pathlib import Path

import pytest

from slurm_lifecycle.core.plan import Drain, Plan
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.provision.command import CommandProvisioner
from slurm_lifecycle.service.daemon import SystemClock
from slurm_lifecycle.service.executor import Executor, Ports
from slurm_lifecycle.service.notify import LogNotifier
from slurm_lifecycle.service.tickets import FileTickets
from slurm_lifecycle.simulation.port import SimSlurm
from slurm_lifecycle.simulation.slurmctld import NodeSpec, SlurmConf, Slurmctld
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline
from slurm_lifecycle.store.opening import open_store
from tests.unit.service.test_executor import Reports

OURS = "slc:XID79 gpu3"


@pytest.mark.parametrize(
    ("stands", "result", "after"),
    [
        (OURS, "skipped", OURS),
        (f"{OURS} : Not responding", "skipped", f"{OURS} : Not responding"),
        (f"{OURS} : reboot issued", "done", OURS),
        ("fan noise : reboot issued", "skipped", "fan noise : reboot issued"),
    ],
)
def test_only_a_reason_that_tells_of_a_reboot_is_written_anew(
    tmp_path: Path, stands: str, result: str, after: str
) -> None:
    ctld = Slurmctld(Timeline(), [NodeSpec("n1")], SlurmConf(), stream(0, "slurmctld", "test"))
    ctld.update_node("n1", "DRAIN", stands)
    store = open_store(tmp_path / "store.db", host="h", acting=True)
    ports = Ports(
        slurm=SimSlurm(ctld),
        store=store,
        clock=SystemClock(),
        provisioner=CommandProvisioner((), ()),
        node_command=Reports("{}"),
        tickets=FileTickets(tmp_path / "tickets"),
        notifier=LogNotifier(),
        history=store.history,
    )
    (done,) = Executor(ports, Policy()).execute(Plan(actions=(Drain("n1", OURS),)), {})
    assert (done.result, ctld.view("n1").reason) == (result, after)
