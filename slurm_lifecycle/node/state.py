"""What the agent must remember across a restart, within one boot."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Optional, Set, Tuple

from slurm_lifecycle.core.fault_catalog import ClearRule, Level
from slurm_lifecycle.node.findings import Finding, Sign
from slurm_lifecycle.node.system import DAMAGED, write_atomically

FILE_NAME = "agent_state.json"


@dataclass
class AgentState:
    """Written before the effects that it is about, so that a kill at any moment repeats none of them.

    Attributes:
        seq: number of the last verdict announced to Slurm in this boot.
        announced: that verdict's level, code and component.
        drains: drains made in this boot.
        done: occurrences that are settled: drained for, or found drained by us.
        occurrences: findings raised so far in this boot.
        kmsg_seq: the last kernel-log record seen.
        sent: a drain was sent, and what came of it is not on record yet.
        stuck: probe name to process id and start time of a child that the kernel does not let die.
    """

    boot_id: str
    seq: int = 0
    announced: Optional[Tuple[str, str, str]] = None
    drains: int = 0
    done: Set[str] = field(default_factory=set)
    occurrences: int = 0
    kmsg_seq: int = -1
    stuck: Dict[str, Tuple[int, int]] = field(default_factory=dict)
    findings: List[Finding] = field(default_factory=list)
    sent: bool = False

    def to_json(self) -> str:
        """One JSON object."""
        raw = asdict(self)
        raw["done"] = sorted(self.done)
        for row in raw["findings"]:
            sign = row["sign"]
            sign["clears"] = sign["clears"].value if sign["clears"] else None
            sign["level_cap"] = sign["level_cap"].value if sign["level_cap"] else None
        return json.dumps(raw) + "\n"


def save_state(run_dir: str, state: AgentState) -> None:
    """Write it to the run directory, atomically."""
    write_atomically(f"{run_dir}/{FILE_NAME}", state.to_json())


def load_state(run_dir: str, boot_id: str) -> AgentState:
    """What was remembered in this boot; a fresh state after a reboot, or when the file is damaged."""
    try:
        with open(f"{run_dir}/{FILE_NAME}", encoding="utf-8") as file:
            raw = json.load(file)
        if raw["boot_id"] != boot_id:
            return AgentState(boot_id)
        return _from_raw(raw)
    except DAMAGED:
        return AgentState(boot_id)


def _from_raw(raw: Dict[str, Any]) -> AgentState:
    announced = raw["announced"]
    return AgentState(
        boot_id=str(raw["boot_id"]),
        seq=int(raw["seq"]),
        announced=(str(announced[0]), str(announced[1]), str(announced[2])) if announced else None,
        # An agent that was killed over a drain did make it, for all that is known.
        drains=int(raw["drains"]) + bool(raw.get("sent", False)),
        done={str(item) for item in raw["done"]},
        occurrences=int(raw["occurrences"]),
        kmsg_seq=int(raw["kmsg_seq"]),
        stuck={str(name): (int(pid), int(ticks)) for name, (pid, ticks) in raw["stuck"].items()},
        findings=[_finding(row) for row in raw["findings"]],
    )


def _finding(row: Dict[str, Any]) -> Finding:
    sign = row["sign"]
    return Finding(
        check=str(row["check"]),
        sign=Sign(
            code=str(sign["code"]),
            component=str(sign["component"]),
            text=str(sign["text"]),
            evidence=str(sign["evidence"]),
            device=str(sign["device"]),
            clears=ClearRule(sign["clears"]) if sign["clears"] else None,
            level_cap=Level(sign["level_cap"]) if sign["level_cap"] else None,
        ),
        occurrence=str(row["occurrence"]),
        raised_s=float(row["raised_s"]),
        seen_s=float(row["seen_s"]),
        count=int(row["count"]),
    )
