"""Which GPUs this boot started with: a lost GPU answers no more, and a missing one shifts the others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Dict, Optional, Tuple

from slurm_lifecycle.node.checks.nvml import Snapshot
from slurm_lifecycle.node.system import DAMAGED, write_atomically

FILE_NAME = "inventory.json"


@dataclass(frozen=True)
class GpuIdentity:
    """One GPU as it was seen first in this boot. `device` is its PCI bus id."""

    index: int
    device: str
    uuid: str
    serial: str
    name: str

    @property
    def component(self) -> str:
        """How findings and reasons call it."""
        return f"gpu{self.index}"


@dataclass(frozen=True)
class Inventory:
    """The GPUs of this boot."""

    gpus: Tuple[GpuIdentity, ...] = ()

    @property
    def components(self) -> Dict[str, str]:
        """PCI bus id to component."""
        return {gpu.device: gpu.component for gpu in self.gpus}

    def component_of(self, device: str) -> str:
        """Component of a PCI bus id; the bus id itself when it is not of this boot's GPUs."""
        return self.components.get(device, device)

    def merged(self, snapshot: Snapshot) -> Inventory:
        """With the GPUs that are new; those on record keep their index.

        Args:
            snapshot: a look at the driver.
        """
        known = {gpu.device for gpu in self.gpus}
        taken = {gpu.index for gpu in self.gpus}
        added = []
        for gpu in snapshot.gpus:
            if not gpu.device or gpu.device in known:
                continue
            index = gpu.index if gpu.index not in taken else max(taken) + 1
            taken.add(index)
            identity = GpuIdentity(index, gpu.device, gpu.text("uuid"), gpu.text("serial"), gpu.text("name"))
            added.append(identity)
        return Inventory(tuple(sorted((*self.gpus, *added), key=lambda gpu: gpu.index))) if added else self


def save_inventory(run_dir: str, boot_id: str, inventory: Inventory) -> None:
    """Write it to the run directory, for later runs in this boot."""
    rows = [asdict(gpu) for gpu in inventory.gpus]
    write_atomically(f"{run_dir}/{FILE_NAME}", json.dumps({"boot_id": boot_id, "gpus": rows}) + "\n")


def load_inventory(run_dir: str, boot_id: str) -> Inventory:
    """What an earlier run of this boot saw; empty when there is none, or it is damaged."""
    try:
        with open(f"{run_dir}/{FILE_NAME}", encoding="utf-8") as file:
            raw = json.load(file)
        if raw["boot_id"] != boot_id:
            return Inventory()
        return Inventory(tuple(_identity(row) for row in raw["gpus"]))
    except DAMAGED:
        return Inventory()


def _identity(row: Dict[str, object]) -> GpuIdentity:
    index: Optional[object] = row["index"]
    if not isinstance(index, int):
        raise TypeError("index is a number")
    return GpuIdentity(index, *(str(row[key]) for key in ("device", "uuid", "serial", "name")))
