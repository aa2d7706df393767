"""Texts of the cluster's configuration files: slurm.conf, gres.conf, hosts, agent.conf."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_lifecycle.sandbox.settings import Layout, Settings

CONTROLLER = "ctl"


@dataclass(frozen=True, slots=True)
class Hooks:
    """Paths of the Slurm hooks; empty where there is none."""

    prolog: str = ""
    epilog: str = ""
    healthcheck: str = ""
    reboot: str = ""
    task_prolog: str = ""


def slurm_conf(settings: Settings, layout: Layout, ports: Sequence[int], hooks: Hooks) -> str:
    """slurm.conf of the sandbox.

    Args:
        settings: settings of the sandbox.
        layout: where its files lie.
        ports: slurmctld's port, then one for each node; more are not looked at.
        hooks: the hooks to wire.
    """
    size = f"CPUs=16 RealMemory=64000 Gres=gpu:{settings.gpus} State=UNKNOWN"
    nodes = "\n".join(
        f"NodeName={name} NodeAddr=127.0.0.1 Port={port} {size}"
        for name, port in zip(settings.node_names(), ports[1:], strict=False)
    )
    small = settings.node_names()[: max(1, settings.nodes // 4)]
    return f"""\
ClusterName=sandbox-{settings.name}
SlurmctldHost={CONTROLLER}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={layout.munge_socket}
# Every daemon runs under a host name that resolves to 127.0.0.1: with these two, nothing listens elsewhere.
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={layout.ctld}/state
SlurmctldPidFile={layout.ctld}/slurmctld.pid
SlurmctldLogFile={layout.ctld}/slurmctld.log
SlurmdSpoolDir={layout.nodes}/%n/spool
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile={layout.nodes}/%n/log/slurmd.log
SlurmctldDebug=verbose
SlurmdDebug=info
# The emulated nodes share one machine: no cgroups, no affinity, and the sizes below are not checked.
# No TaskPlugin, accounting or such either: their defaults are "none", by whatever name a release calls it.
ProctrackType=proctrack/linuxproc
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1
ReturnToService={settings.return_to_service}
SlurmdTimeout={settings.slurmd_timeout_s}
SlurmctldTimeout=30
ResumeTimeout={settings.resume_timeout_s}
MessageTimeout=10
KillWait=5
UnkillableStepTimeout=60
MinJobAge=600
JobRequeue=1
{_hook_lines(settings, hooks)}
{nodes}
PartitionName=batch Nodes={settings.hostlist()} Default=YES MaxTime=UNLIMITED
PartitionName=small Nodes={",".join(small)} MaxTime=01:00:00
{settings.slurm_conf_extra}
"""


def _hook_lines(settings: Settings, hooks: Hooks) -> str:
    # Alloc: without it a node that runs no step of a job never runs the prolog.
    lines = ["PrologFlags=Alloc", f"RebootProgram={hooks.reboot}", f"TaskProlog={hooks.task_prolog}"]
    if hooks.prolog:
        lines.append(f"Prolog={hooks.prolog}")
    if hooks.epilog:
        lines.append(f"Epilog={hooks.epilog}")
    if hooks.healthcheck and settings.health_interval_s:
        lines += [
            f"HealthCheckProgram={hooks.healthcheck}",
            f"HealthCheckInterval={settings.health_interval_s}",
            "HealthCheckNodeState=ANY",
        ]
    return "\n".join(lines)


def gres_conf(settings: Settings) -> str:
    """gres.conf: the GPU files lie in each node's own /dev."""
    last = settings.gpus - 1
    files = f"/dev/nvidia[0-{last}]" if last else "/dev/nvidia0"
    return f"AutoDetect=off\nNodeName={settings.hostlist()} Name=gpu File={files}\n"


def hosts(settings: Settings) -> str:
    """/etc/hosts: every name of the cluster is loopback."""
    return f"127.0.0.1 localhost {CONTROLLER} {' '.join(settings.node_names())}\n"


def agent_conf(settings: Settings, node: str) -> str:
    """The node agent's configuration."""
    return f"""\
[agent]
mode = {settings.agent_mode}
node_name = {node}
interval_s = {settings.agent_interval_s}
[checks]
expected_gpus = {settings.gpus}
[healthcheck]
agent = {sys.executable} -m slurm_lifecycle.node
"""
