"""`config check`: the configuration against the world, without doing anything in it."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from slurm_lifecycle.core.model import NodeView, Rung
from slurm_lifecycle.core.policy import Mode
from slurm_lifecycle.service.bmc_record import is_serial
from slurm_lifecycle.service.config import Config

_ALWAYS = frozenset({"drain", "return"})


class Weight(Enum):
    """`PROBLEM`: it will not work. `NOTE`: it works, perhaps not as meant."""

    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Remark:
    """One line about one key: what is wrong, and what to put there."""

    weight: Weight
    key: str
    text: str


def check_config(config: Config, nodes: Mapping[str, NodeView] | None) -> tuple[Remark, ...]:
    """Check a configuration that was loaded against this host and, where it answered, Slurm.

    Args:
        config: the configuration.
        nodes: Slurm's nodes; None where Slurm could not be asked.
    """
    remarks = [*_meaning(config), *_paths(config), *_commands(config), *_bmcs(config)]
    if nodes is not None:
        remarks += _names(config, nodes)
    return tuple(remarks)


def _meaning(config: Config) -> Iterator[Remark]:
    policy = config.policy
    if policy.mode is Mode.ACT and not policy.partitions:
        yield Remark(Weight.NOTE, "partitions", 'empty, so nothing will be done; name some, or ["*"] for all')
    if policy.mode is Mode.ACT and not policy.rungs:
        yield Remark(Weight.NOTE, "rungs", 'empty, so nothing will be done; begin with ["drain", "return"]')
    without = sorted(word for word in policy.rungs - _ALWAYS if Rung(word) not in policy.effects)
    if without:
        yield Remark(Weight.NOTE, "rungs", f"{', '.join(without)}: no effect in this release, passed over")
    if policy.rungs - _ALWAYS and "return" not in policy.rungs:
        yield Remark(Weight.NOTE, "rungs", 'nodes are repaired but never returned; add "return"')
    if Rung.RMA.value in policy.rungs and not config.node_command:
        yield Remark(
            Weight.NOTE, "node_command.argv", "empty: tickets will lack the serial number of the part"
        )
    unknown = sorted(set(policy.domain_budgets) - set(policy.domains.values()))
    if unknown:
        yield Remark(Weight.PROBLEM, "budget.domain", f"no such domain: {', '.join(unknown)}; see [domains]")


def _paths(config: Config) -> Iterator[Remark]:
    for key, folder in (("store.path", config.store_path.parent), ("rma.folder", config.rma_folder)):
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        if not nearest.is_dir():
            yield Remark(Weight.PROBLEM, key, f"{nearest} is not a folder; move it away or name another path")
        elif not os.access(nearest, os.W_OK):
            yield Remark(
                Weight.PROBLEM, key, f"{nearest} cannot be written by this user; chown it to the daemon's"
            )
    if config.store_path.is_dir():
        yield Remark(Weight.PROBLEM, "store.path", f"{config.store_path} is a folder; name a file in it")


def _bmcs(config: Config) -> Iterator[Remark]:
    if config.bmc is None:
        return
    entries = config.bmc.entries.values()
    key = str(config.bmc.path)
    if not entries:
        yield Remark(Weight.NOTE, "bmc.file", f"{key} names no node; add a [[group]], or remove [bmc]")
    for file in sorted({one.ca_file for one in entries if one.ca_file}):
        if not os.access(file, os.R_OK):
            yield Remark(Weight.PROBLEM, "ca_file", f"{file} cannot be read by this user; correct {key}")
    insecure = [one.node for one in entries if one.insecure]
    if insecure:
        text = f"no certificate of {_some(insecure)} is checked: others on that network can take the password"
        yield Remark(Weight.NOTE, "insecure", f"{text}; name ca_file or fingerprint in {key}")
    unrecorded = [one.node for one in entries if not one.serial]
    if unrecorded:
        text = f"none on record of {_some(unrecorded)}, which are never switched off and on"
        yield Remark(Weight.NOTE, "bmc.serials", f"{text}; `slurm-lifecycle bmc record --all`")
    doubtful = [one.node for one in entries if one.serial and not is_serial(one.serial)]
    if doubtful:
        text = f"that of {_some(doubtful)} is a word that many machines share; take it out"
        yield Remark(Weight.PROBLEM, "bmc.serials", text)


def _some(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
    return f"{', '.join(nodes[:5])}{more}"


def _commands(config: Config) -> Iterator[Remark]:
    commands = {
        "slurm.scontrol": config.slurm.scontrol,
        "slurm.squeue": config.slurm.squeue,
        "reimage.start": next(iter(config.reimage.start), ""),
        "reimage.poll": next(iter(config.reimage.poll), ""),
        "reimage.abort": next(iter(config.reimage.abort), ""),
        "rma.command": next(iter(config.rma_command), ""),
        "notify.command": next(iter(config.notify_command), ""),
        "node_command.argv": next(iter(config.node_command), ""),
    }
    for key, command in commands.items():
        if not command or shutil.which(command):
            continue
        if Path(command).exists():
            yield Remark(Weight.PROBLEM, key, f"{command} is not executable; chmod 755 {command}")
        else:
            yield Remark(Weight.PROBLEM, key, f"{command} is not there; install it or write its full path")


def _names(config: Config, nodes: Mapping[str, NodeView]) -> Iterator[Remark]:
    known = {name for view in nodes.values() for name in view.partitions}
    there = ", ".join(sorted(known)) or "none"
    for key, names in (
        ("partitions", set(config.policy.partitions) - {"*"}),
        ("budget.partition", set(config.policy.partition_budgets)),
    ):
        if names - known:
            text = f"Slurm has no partition {', '.join(sorted(names - known))}; it has {there}"
            yield Remark(Weight.PROBLEM, key, text)
    strange = sorted(set(config.policy.domains) - set(nodes))
    if strange:
        yield Remark(Weight.NOTE, "domains", f"Slurm has no node {_some(strange)}; correct the list")
    if config.bmc is not None and (strange := sorted(set(config.bmc.entries) - set(nodes))):
        yield Remark(
            Weight.NOTE, "bmc.file", f"Slurm has no node {_some(strange)}; correct {config.bmc.path}"
        )
