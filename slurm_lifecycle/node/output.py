"""What the agent leaves on the node: verdict file, report, node_exporter text file, and a tidy directory."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Dict, List, Mapping, Tuple

from slurm_lifecycle import __version__
from slurm_lifecycle.core.fault_catalog import Level
from slurm_lifecycle.node.checks.nvml import Snapshot
from slurm_lifecycle.node.findings import Finding
from slurm_lifecycle.node.inventory import Inventory
from slurm_lifecycle.node.system import remove_quietly, write_atomically
from slurm_lifecycle.node.verdict import Verdict, format_file

VERDICT_FILE = "verdict"
REPORT_FILE = "report.json"
MAX_JOB_ENDS = 200
MAX_REFUSALS = 50


@dataclass(frozen=True)
class Status:
    """All that is published of one moment."""

    verdict: Verdict
    findings: Tuple[Finding, ...]
    inventory: Inventory
    snapshot: Snapshot
    boot_id: str
    node: str
    mode: str
    uptime_s: float
    wall_s: float
    seq: int = 0
    drains: int = 0
    notes: Tuple[str, ...] = ()


def write_verdict(run_dir: str, status: Status) -> None:
    """The file that the hooks read."""
    text = format_file(status.verdict, status.uptime_s, status.boot_id)
    write_atomically(f"{run_dir}/{VERDICT_FILE}", text)


def write_report(run_dir: str, status: Status) -> None:
    """The detail behind the verdict, for people and for the daemon's bundles."""
    report = {
        "version": 1,
        "agent": __version__,
        "node": status.node,
        "mode": status.mode,
        "boot_id": status.boot_id,
        "time_s": round(status.wall_s, 3),
        "uptime_s": round(status.uptime_s, 3),
        "seq": status.seq,
        "drains_this_boot": status.drains,
        "driver": status.snapshot.driver,
        "verdict": {
            "level": status.verdict.level.value,
            "code": status.verdict.code,
            "component": status.verdict.component,
            "text": status.verdict.text,
            "gate": status.verdict.gate,
        },
        "findings": [_finding_row(finding) for finding in status.findings],
        "gpus": _gpu_rows(status),
        "notes": list(status.notes),
    }
    write_atomically(f"{run_dir}/{REPORT_FILE}", json.dumps(report, indent=1) + "\n")


def _finding_row(finding: Finding) -> Dict[str, object]:
    return {
        "code": finding.sign.code,
        "component": finding.sign.component,
        "level": finding.level.value,
        "text": finding.text,
        "evidence": finding.sign.evidence[:500],
        "device": finding.sign.device,
        "check": finding.check,
        "occurrence": finding.occurrence,
        "count": finding.count,
        "clears": finding.clears.value,
        "raised_uptime_s": round(finding.raised_s, 3),
        "seen_uptime_s": round(finding.seen_s, 3),
    }


def _gpu_rows(status: Status) -> List[Dict[str, object]]:
    answers = {gpu.device: gpu for gpu in status.snapshot.gpus}
    rows: List[Dict[str, object]] = []
    for gpu in status.inventory.gpus:
        row: Dict[str, object] = {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "serial": gpu.serial,
            "pci_bus_id": gpu.device,
            "name": gpu.name,
            "answers": gpu.device in answers,
        }
        if gpu.device in answers:
            row["temperature_c"] = answers[gpu.device].number("temperature")
            row["ecc_uncorrected"] = answers[gpu.device].number("ecc")
        rows.append(row)
    return rows


def format_metrics(status: Status) -> str:
    """The node_exporter text file."""
    lines = [
        "# HELP slurm_lifecycle_node_level Verdict of the node's agent: 0 ok, 1 warn, 2 drain.",
        "# TYPE slurm_lifecycle_node_level gauge",
        f"slurm_lifecycle_node_level {status.verdict.level.rank}",
        "# HELP slurm_lifecycle_node_heartbeat_seconds When the agent wrote this, seconds since the epoch.",
        "# TYPE slurm_lifecycle_node_heartbeat_seconds gauge",
        f"slurm_lifecycle_node_heartbeat_seconds {status.wall_s:.0f}",
        "# HELP slurm_lifecycle_node_drains Drains that the agent made in this boot.",
        "# TYPE slurm_lifecycle_node_drains gauge",
        f"slurm_lifecycle_node_drains {status.drains}",
        "# HELP slurm_lifecycle_node_gpus GPUs that the driver answers for.",
        "# TYPE slurm_lifecycle_node_gpus gauge",
        f"slurm_lifecycle_node_gpus {sum(1 for gpu in status.snapshot.gpus if gpu.device)}",
        "# HELP slurm_lifecycle_node_finding Open findings by level: 1 warn, 2 drain.",
        "# TYPE slurm_lifecycle_node_finding gauge",
    ]
    series: Dict[Tuple[str, str], int] = {}
    for finding in status.findings:
        key = (finding.sign.code, finding.sign.component)
        series[key] = max(series.get(key, 0), finding.level.rank)
    for (code, component), rank in sorted(series.items()):
        labels = _labels({"code": code, "component": component})
        lines.append(f"slurm_lifecycle_node_finding{labels} {rank}")
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}"


def write_metrics(path: str, status: Status) -> None:
    """Write the node_exporter text file; its collector reads whole files only."""
    write_atomically(path, format_metrics(status))


def keep_order(run_dir: str, level: Level) -> None:
    """Bound what the hooks leave: the newest job ends, and refusals of a node that is broken still.

    Args:
        run_dir: the run directory.
        level: the verdict's level now.
    """
    for prefix, keep in (("job_end.", MAX_JOB_ENDS), ("refused.", MAX_REFUSALS)):
        entries = []
        try:
            with os.scandir(run_dir) as found:
                entries = [
                    (entry.stat().st_mtime, entry.path) for entry in found if entry.name.startswith(prefix)
                ]
        except OSError:
            continue
        for _, path in sorted(entries, reverse=True)[keep:]:
            remove_quietly(path)
    if level is not Level.OK:
        return
    # On a well node a marker this old is history; the next hook that has to fail open writes it again.
    for hook in ("prolog", "epilog", "healthcheck"):
        _remove_when_old(f"{run_dir}/failopen.{hook}")


def _remove_when_old(path: str, age_s: float = 24 * 3600.0) -> None:
    try:
        old = time.time() - os.stat(path).st_mtime > age_s
    except OSError:
        return
    if old:
        remove_quietly(path)
