"""What a sandbox wrote down of itself: ports and processes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from slurm_lifecycle.sandbox.procs import ProcessRef
from slurm_lifecycle.sandbox.settings import Layout


@dataclass(slots=True)
class State:
    """What runs.

    Attributes:
        ports: slurmctld's port, then one for each node, then one for each BMC where there are any.
        processes: `munged`, `slurmctld`, `bmc` and `machine:<node>`.
        ready: `up` went through to its end.
    """

    ports: list[int] = field(default_factory=list)
    processes: dict[str, ProcessRef] = field(default_factory=dict)
    ready: bool = False

    def save(self, layout: Layout) -> None:
        """Writes the state, by rename."""
        processes = {name: ref.to_dict() for name, ref in self.processes.items()}
        text = json.dumps({"ports": self.ports, "processes": processes, "ready": self.ready}, indent=1)
        draft = layout.state.with_suffix(".tmp")
        draft.write_text(text, encoding="utf-8")
        draft.rename(layout.state)

    @classmethod
    def load(cls, layout: Layout) -> State:
        """Reads the state; empty where there is none or it is damaged (a sweep finds the processes then)."""
        try:
            raw = json.loads(layout.state.read_text(encoding="utf-8"))
            found = {name: ProcessRef.from_dict(ref) for name, ref in raw["processes"].items()}
            return cls(
                [int(port) for port in raw["ports"]],
                {name: ref for name, ref in found.items() if ref is not None},
                raw.get("ready") is True,
            )
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return cls()


def node_init(machine_file: Path) -> ProcessRef | None:
    """PID 1 of a node, as its supervisor wrote it down; None where it is off."""
    try:
        return ProcessRef.from_dict(json.loads(machine_file.read_text(encoding="utf-8"))["init"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
