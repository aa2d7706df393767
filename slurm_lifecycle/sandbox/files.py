"""Writes what a sandbox consists of before anything runs: configuration, hooks, node folders, libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from slurm_lifecycle.sandbox import bmcs, conf, hooks, preflight
from slurm_lifecycle.sandbox.faults import machine_serial
from slurm_lifecycle.sandbox.settings import Layout, SandboxError, Settings


def write(settings: Settings, layout: Layout, ports: Sequence[int]) -> None:
    """Everything but the libraries.

    Args:
        settings: of the sandbox.
        layout: where its files lie; the folders for the whole cluster are there.
        ports: slurmctld's, one for each node, one for each BMC where there are any.

    Raises:
        SandboxError: a BMC profile that there is not, or no openssl.
    """
    wired = hooks.install(settings, layout)
    hooks.install_tools(layout)
    if settings.bmc:
        bmcs.write_files(settings, layout, ports[1 + settings.nodes :])
    layout.slurm_conf.write_text(conf.slurm_conf(settings, layout, ports, wired), encoding="utf-8")
    (layout.etc / "gres.conf").write_text(conf.gres_conf(settings), encoding="utf-8")
    layout.hosts.write_text(conf.hosts(settings), encoding="utf-8")
    for name in settings.node_names():
        node = layout.node(name)
        for folder in (node.config, node.link, node.spool, node.logs):
            folder.mkdir(parents=True)
        node.product_serial.write_text(f"{machine_serial(name)}\n", encoding="ascii")
        (node.config / "agent.conf").write_text(conf.agent_conf(settings, name), encoding="utf-8")
        os.mkfifo(node.request_fifo)


def build_nvml(layout: Layout, progress: Callable[[str], None]) -> None:
    """The fake NVML library, where there is a compiler.

    Raises:
        SandboxError: the compiler failed.
    """
    from slurm_lifecycle.sandbox import fake_nvml

    if preflight.find("gcc") is None:
        progress("no gcc: nodes have no NVML (apt-get install gcc libc6-dev)")
        return
    try:
        fake_nvml.build(layout.lib)
    except fake_nvml.FakeNvmlError as problem:
        raise SandboxError(str(problem)) from problem
