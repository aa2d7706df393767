"""Asks many BMCs, and the nodes behind them, in bounded time; reads only."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from slurm_lifecycle.core.machine import BmcProblem, MachineReading

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from slurm_lifecycle.redfish.client import RedfishBmc
    from slurm_lifecycle.redfish.connection import Deadline
    from slurm_lifecycle.service.bmc_config import BmcConfig
    from slurm_lifecycle.service.bmc_record import HostSerials

_SAY_EVERY_S = 2.0
# The slowest known BMCs (captured DGX H100) take 20 s an answer, and one reading takes five of them.
_ONE_S = 120.0
# Beside it for each further turn of the threads; most BMCs answer in two.
_TURN_S = 20.0
_HOST_S = 15.0
_HOST_THREADS = 16
# Nobody answered, so nothing is known of these; another problem is one of the site's own.
UNREACHED = frozenset({BmcProblem.UNREACHABLE, BmcProblem.TIMEOUT, BmcProblem.BUSY})


def longest_s(nodes: int, threads: int) -> float:
    """How long so many BMCs are waited for at most."""
    return _ONE_S + _TURN_S * (nodes // threads)


def read_bmcs(
    bmcs: BmcConfig, nodes: Collection[str], within_s: float, *, compare: bool = True
) -> dict[str, MachineReading]:
    """One reading of each, in the order of `nodes`; never raises for what a BMC does.

    Args:
        bmcs: how they are reached.
        nodes: which; all are in `bmcs`.
        within_s: for all of them.
        compare: with the serial number on record; else its problem is nobody's.
    """
    from slurm_lifecycle.service.bootstrap import make_bmc_pool

    entries = {node: bmcs.entries[node] for node in nodes}
    if not compare:
        entries = {node: replace(one, serial="") for node, one in entries.items()}
    done: list[str] = []

    def work(bmc: RedfishBmc, deadline: Deadline) -> MachineReading:
        reading = bmc.read(deadline)
        done.append(reading.node)
        return reading

    pool = make_bmc_pool(replace(bmcs, entries=entries))
    try:
        with _progress("BMCs", done, len(entries)):
            found = pool.run(entries, work, within_s)
    finally:
        pool.close()
    return {node: found.get(node) or _late(node, within_s) for node in nodes}


def _late(node: str, within_s: float) -> MachineReading:
    detail = f"BMC of {node}: no whole answer within {within_s:g} s"
    return MachineReading(node, time.time(), problem=BmcProblem.TIMEOUT, detail=detail)


def ask_hosts(argv: Sequence[str], nodes: Collection[str]) -> dict[str, HostSerials]:
    """What the nodes themselves say their serial numbers are, by the site's way to reach them."""
    from slurm_lifecycle.service.bmc_record import HostSerials, ask_host
    from slurm_lifecycle.service.node_command import TemplateNodeCommand

    if not argv:
        way = "no way is set: set [node_command] argv"
        return dict.fromkeys(nodes, HostSerials(problem=way))
    command, done = TemplateNodeCommand(argv), []
    until = _HOST_S * (2 + len(nodes) // _HOST_THREADS)

    def work(node: str) -> HostSerials:
        found = ask_host(command, node, _HOST_S)
        done.append(node)
        return found

    executor = ThreadPoolExecutor(_HOST_THREADS, thread_name_prefix="host-serial")
    try:
        with _progress("nodes", done, len(nodes)):
            asked = {node: executor.submit(work, node) for node in nodes}
            wait(asked.values(), timeout=until)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    late = HostSerials(problem=f"no answer within {until:g} s")
    return {node: one.result() if one.done() and not one.cancelled() else late for node, one in asked.items()}


@contextlib.contextmanager
def _progress(what: str, done: Sequence[str], of: int) -> Iterator[None]:
    """Tell a person who waits how far it is; a file gets no such lines."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(over, what, done, of), daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _tell(over: threading.Event, what: str, done: Sequence[str], of: int) -> None:
    while not over.wait(_SAY_EVERY_S):
        click.echo(f"{len(done)} of {of} {what} answered or gave up", err=True)
