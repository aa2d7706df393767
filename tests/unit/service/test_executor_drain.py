"""The executor and drains of ours: set again over one that stands, lifted in the middle of a reboot."""

from pathlib import Path

import pytest

from slurm_lifecycle.core.plan import Action, Drain, Plan, Undrain
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.provision.command import CommandProvisioner
from slurm_lifecycle.service.daemon import SystemClock
from slurm_lifecycle.service.executor import Done, Executor, Ports
from slurm_lifecycle.service.notify import LogNotifier
from slurm_lifecycle.service.tickets import FileTickets
from slurm_lifecycle.service.without_bmc import WithoutBmc
from slurm_lifecycle.simulation.port import SimSlurm
from slurm_lifecycle.simulation.slurmctld import NodeSpec, SlurmConf, Slurmctld
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline
from slurm_lifecycle.store.opening import open_store
from tests.unit.service.test_executor import Reports

OURS = "slc:XID79 gpu3"


def carry_out(folder: Path, ctld: Slurmctld, action: Action) -> Done:
    store = open_store(folder / "store.db", host="h", acting=True)
    ports = Ports(
        slurm=SimSlurm(ctld),
        store=store,
        clock=SystemClock(),
        provisioner=CommandProvisioner((), ()),
        bmc=WithoutBmc(),
        node_command=Reports("{}"),
        tickets=FileTickets(folder / "tickets"),
        notifier=LogNotifier(),
        history=store.history,
    )
    (done,) = Executor(ports, Policy()).execute(Plan(actions=(action,)), {})
    store.close()
    return done


def drained(reason: str) -> Slurmctld:
    ctld = Slurmctld(Timeline(), [NodeSpec("n1")], SlurmConf(), stream(0, "slurmctld", "test"))
    ctld.update_node("n1", "DRAIN", reason)
    return ctld


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
    ctld = drained(stands)
    done = carry_out(tmp_path, ctld, Drain("n1", OURS))
    assert (done.result, ctld.view("n1").reason) == (result, after)


def test_drain_is_not_lifted_where_somebody_reboots_the_node_meanwhile(tmp_path: Path) -> None:
    ctld = drained(OURS)
    ctld.reboot("n1")
    done = carry_out(tmp_path, ctld, Undrain("n1", "n1.1", resume=False))
    assert done.result == "skipped"
    assert "reboot" in done.detail
    assert "DRAIN" in ctld.view("n1").state


def test_drain_is_lifted_where_nobody_does(tmp_path: Path) -> None:
    ctld = drained(OURS)
    assert carry_out(tmp_path, ctld, Undrain("n1", "n1.1", resume=False)).result == "done"
    assert "DRAIN" not in ctld.view("n1").state
