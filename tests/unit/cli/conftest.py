"""A site for the CLI: a real store, a configuration, and an scontrol that prints recorded text."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurm_lifecycle.cli.main import cli
from slurm_lifecycle.core.fault_catalog import FaultClass, Level
from slurm_lifecycle.core.model import Attempt, Finding, Hold, Incident, Phase, Rung, Step, Trip
from slurm_lifecycle.core.plan import Event, NodeStatus, Plan
from slurm_lifecycle.service.bootstrap import host_name
from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.sql_store import SqlStore

BOOT = "0f8fad5b-d9cb-469f-a165-70867728950e"
_RECORD = """\
NodeName={name} Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=16 CPUTot=16 CPULoad=0.10
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=gpu:8
   NodeAddr=127.0.0.1 NodeHostName={name} Port=6818 Version=22.05.8
   OS=Linux 6.1.0 #1 SMP
   RealMemory=64000 AllocMem=0 FreeMem=1 Sockets=16 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=gpu
   BootTime=2026-01-01T00:00:00 SlurmdStartTime=2026-01-01T00:00:00
   LastBusyTime=2026-01-01T00:00:00
   CfgTRES=cpu=16,mem=64000M,billing=16
   AllocTRES=
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s{tail}
"""


def record(name: str, state: str, *tail: str) -> str:
    """One node as `scontrol show node` of 22.05 prints it; the tail is Reason, Comment, Extra."""
    return _RECORD.format(name=name, state=state, tail="".join(f"\n   {line}" for line in tail))


@dataclass
class Site:
    """Runs the CLI against the site."""

    folder: Path

    @property
    def config(self) -> Path:
        """The site's configuration."""
        return self.folder / "site.toml"

    def run(self, *arguments: str, stdin: str | None = None) -> Result:
        """One command, as a person would give it."""
        return CliRunner().invoke(cli, ["--config", str(self.config), *arguments], input=stdin)

    def acting(self) -> SqlStore:
        """The store as the daemon opens it."""
        return open_store(self.folder / "store.db", host=host_name(), acting=True)

    def slurm_says(self, *records: str) -> None:
        """What `scontrol show node` prints from now on."""
        (self.folder / "nodes.txt").write_text("".join(f"{line}\n" for line in records), encoding="utf-8")


def plan_of_a_fault(now: float) -> Plan:
    """One node in repair, one of a person, one held, and the breaker tripped for a domain."""
    incident = Incident(
        id="n1.100",
        node="n1",
        fault_class=FaultClass.REBOOT,
        code="XID79",
        component="gpu3",
        step=Step.REPAIRING,
        opened_at=now - 600,
        step_since=now - 60,
        deadline=now + 1200,
        path_index=0,
        rung=Rung.REBOOT,
        drain_confirmed=True,
    )
    attempt = Attempt("n1.100.reboot.1", "n1.100", "n1", Rung.REBOOT, 1, now - 60, now + 1740, BOOT)
    return Plan(
        incidents=(incident,),
        findings=(Finding("n1", "XID79", "gpu3", Level.DRAIN, "fell off the bus", BOOT, now - 600),),
        attempts=(attempt,),
        trips=(Trip("domain:rack1", now - 30, "5 nodes within 10 min: XID79"),),
        holds=(Hold("n4", now - 10, "ada", "fan is being changed"),),
        events=(Event(now - 600, "n1", "opened", "XID79 gpu3 -> draining", incident_id="n1.100"),),
        statuses=(
            NodeStatus("n1", Phase.WORKING, "reboot attempt 1 begins"),
            NodeStatus("n2", Phase.FOREIGN, "drained by a person: untouched"),
            NodeStatus("n3", Phase.IN_SERVICE, ""),
            NodeStatus("n4", Phase.IN_SERVICE, "held by ada"),
        ),
    )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site whose daemon ran once and stands still now."""
    scontrol, squeue = tmp_path / "scontrol", tmp_path / "squeue"
    scontrol.write_text(f"#!/bin/sh\ncat {tmp_path}/nodes.txt\n", encoding="utf-8")
    header = "JOBID|STATE|UID|RESTART_COUNT|NODELIST|REASON|;"
    squeue.write_text(f"#!/bin/sh\necho '{header}'\n", encoding="utf-8")
    for command in (scontrol, squeue):
        command.chmod(0o755)
    made = Site(tmp_path)
    made.config.write_text(
        'mode = "act"\npartitions = ["gpu"]\nrungs = ["drain", "return", "reboot", "rma"]\n'
        f'[store]\npath = "{tmp_path}/store.db"\n[rma]\nfolder = "{tmp_path}/tickets"\n'
        f'[slurm]\nscontrol = "{scontrol}"\nsqueue = "{squeue}"\ntimeout_s = 5\n'
        '[domains]\nrack1 = "n[1-4]"\n[node_command]\nargv = ["true", "{node}"]\n',
        encoding="utf-8",
    )
    made.slurm_says(*(record(name, "IDLE") for name in ("n1", "n2", "n3", "n4")))
    return made
