"""The figures of the node side, measured on a sandbox of its own; prints a table and JSON.

    python benchmarks/figures.py [--samples 50] [--watch-s 600] [--json FILE]

Each figure is taken from outside the package: hooks and checks as processes, Slurm by scontrol, the agent by
/proc. Times on a shared machine are noisy: read ratios and medians.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox.cluster import Sandbox

ROOT = Path(__file__).resolve().parent.parent
RUNS = 200
MAX_DRAINS_A_BOOT = 3


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-(len(ordered) * share) // 1) - 1))]


def once_ms(argv: list[str], env: dict[str, str]) -> float:
    """Wall time of one process."""
    started = time.perf_counter()
    subprocess.run(argv, env=env, check=False, stdin=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1000


def prolog() -> dict[str, float]:
    """The prolog gate against an empty sh script, run in turn."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.sh")
        empty.write_text("#!/bin/sh\nexit 0\n")
        empty.chmod(0o755)
        times: dict[str, list[float]] = {"empty": [], "ok": [], "drain": []}
        for level, gate, code in (("ok", "no", "-"), ("drain", "yes", "XID79")):
            Path(folder, level).mkdir()
            uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
            text = f"v1 {level} {uptime} {boot} {code} gpu3 fell off the bus\ngate {gate}\n"
            Path(folder, level, "verdict").write_text(text)
        for _ in range(RUNS):
            times["empty"].append(once_ms([str(empty)], {}))
            for level in ("ok", "drain"):
                env = {"SLC_RUN_DIR": f"{folder}/{level}", "SLURM_JOB_ID": "7"}
                times[level].append(once_ms([str(ROOT / "prolog/prolog.sh")], env))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "prolog_empty_ms": medians["empty"],
        "prolog_ok_ms": medians["ok"],
        "prolog_drain_ms": medians["drain"],
        "prolog_ok_ratio": medians["ok"] / medians["empty"],
        "prolog_drain_ratio": medians["drain"] / medians["empty"],
    }


def one_shot(sandbox: Sandbox) -> dict[str, float]:
    """CPU time of a full one-shot check of the sandbox's GPUs, process start included."""
    fake = next((sandbox.root / "lib").rglob("libnvidia-ml.so.1"))
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder, "agent.conf")
        kmsg = Path(folder, "kmsg")
        kmsg.write_text("6,1,1000,-;booted\n")
        agent = f"[agent]\nrun_dir = {folder}/run\nkmsg = {kmsg}\nchannel = none\nnode_name = n1\n"
        conf.write_text(f"{agent}[checks]\nexpected_gpus = 8\nfilesystems = /\n")
        state = Path(folder, "nvml")
        state.write_text("gpus=8\n")
        env = {**os.environ, "LD_LIBRARY_PATH": str(fake.parent), "SLC_FAKE_NVML_STATE": str(state)}
        argv = [sys.executable, "-m", "slurm_lifecycle.node", "--config", str(conf), "--once"]
        spent: list[float] = []
        for _ in range(30):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert done.returncode == 0, done.stderr
            spent.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
        report = json.loads(Path(folder, "run", "report.json").read_text())
        assert len(report["gpus"]) == 8
    return {"one_shot_cpu_ms": statistics.median(spent)}


def shown_state(sandbox: Sandbox, node: str) -> str:
    """The node's line as scontrol prints it."""
    return sandbox.client(["scontrol", "-o", "show", "node", node]).stdout


def fault_to_drain(sandbox: Sandbox, samples: int) -> dict[str, float]:
    """From the kernel-log line to DRAIN in slurmctld, looked at every few milliseconds."""
    taken: list[float] = []
    while len(taken) < samples:
        for node in sandbox.nodes():
            for gpu in range(MAX_DRAINS_A_BOOT):
                if len(taken) >= samples:
                    break
                started = time.perf_counter()
                sandbox.inject(node.name, "xid", code=79, gpu=gpu)
                while "+DRAIN" not in shown_state(sandbox, node.name):
                    assert time.perf_counter() - started < 30, f"{node.name} is not drained"
                taken.append(time.perf_counter() - started)
                sandbox.client(["scontrol", "update", f"NodeName={node.name}", "State=UNDRAIN"])
                time.sleep(1.0)
        for node in sandbox.nodes():
            before = node.boot_id()
            node.clear()
            node.reboot()
            node.wait_booted(60.0, after=before)
        settle(sandbox)
    return {
        "line_to_drain_p50_s": quantile(taken, 0.5),
        "line_to_drain_p99_s": quantile(taken, 0.99),
        "line_to_drain_samples": float(len(taken)),
    }


def settle(sandbox: Sandbox) -> None:
    """Wait until every node is in service with a good verdict of its present boot."""
    deadline = time.monotonic() + 120
    for node in sandbox.nodes():
        while True:
            text = shown_state(sandbox, node.name)
            if f"slc1 {node.boot_id()}" in text and " ok - -" in text and "State=IDLE " in text:
                break
            if "DOWN" in text or "+DRAIN" in text:
                sandbox.client(["scontrol", "update", f"NodeName={node.name}", "State=RESUME"])
            assert time.monotonic() < deadline, text
            time.sleep(0.3)


def agent_pids() -> list[int]:
    """Agents of sandboxes: processes of the node package without `--once` or `--boot`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"slurm_lifecycle.node" in argv and not {b"--once", b"--boot"} & set(argv):
                found.append(int(entry.name))
    return found


def cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[number]) for number in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


def agent_cost(seconds: float) -> dict[str, float]:
    """CPU share and memory of agents at rest at their usual interval, probes included."""
    with running_sandbox("figures-rest", agent_interval_s=60) as sandbox:
        settle(sandbox)
        roots = {pid: cpu_s(pid) for pid in agent_pids() if belongs(pid, sandbox)}
        time.sleep(seconds)
        shares = [(cpu_s(pid) - before) / seconds * 100 for pid, before in roots.items()]
        peaks = [peak_mib(pid) for pid in roots]
    return {
        "agent_cpu_percent": statistics.median(shares),
        "agent_cpu_percent_worst": max(shares),
        "agent_peak_rss_mib": max(peaks),
        "agent_watched_s": seconds,
        "agents": float(len(shares)),
    }


def belongs(pid: int, sandbox: Sandbox) -> bool:
    """Whether the process runs with the sandbox's slurm.conf."""
    return str(sandbox.root).encode() in Path(f"/proc/{pid}/environ").read_bytes()


def peak_mib(pid: int) -> float:
    """Peak resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no VmHWM of {pid}")


@contextmanager
def running_sandbox(name: str, **settings: Any) -> Iterator[Sandbox]:
    """A sandbox for the length of a block."""
    sandbox = Sandbox.create(name=name, **settings)
    try:
        sandbox.up()
        yield sandbox
    finally:
        sandbox.down()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--watch-s", type=float, default=600.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = prolog()
    with running_sandbox("figures", boot_s=0.5) as sandbox:
        settle(sandbox)
        figures |= one_shot(sandbox)
        figures |= fault_to_drain(sandbox, arguments.samples)
    figures |= agent_cost(arguments.watch_s)
    for name, value in figures.items():
        print(f"{name:28} {value:10.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
