"""A study like those of the laboratory, made of nothing but streams, for the report's tests."""

import math
import random
from collections.abc import Mapping
from dataclasses import replace

from slurm_lifecycle.simulation.lab.results import Repair, RunResult, Sample, Study
from slurm_lifecycle.simulation.streams import stream

DAY_S = 86400.0
POLICIES = {
    "manual": "Agents drain; a person looks after two hours and repairs by hand. The daemon only observes.",
    "reboot-only": "One reboot, then a person.",
    "full": "The full ladder of this release: reboot, reimage, RMA ticket; checks before each return.",
    "full-standby": "The full ladder, with 2 % of the nodes kept free to take the place of those that break.",
}
CAUSES = {
    "gpu_faulty": 148,
    "hbm": 72,
    "software": 54,
    "network": 35,
    "host_maintenance": 32,
    "sram": 19,
    "gsp": 17,
    "nic": 7,
    "nccl_watchdog": 7,
    "sdc": 6,
    "thermal": 6,
    "psu": 3,
    "ssd": 3,
    "cpu": 2,
}
# Hours until a person or the daemon begins, share that goes to RMA, hours of a job's wait per interruption.
_MANNERS = {
    "manual": (2.0, 0.3, 1.6),
    "reboot-only": (0.4, 0.45, 0.9),
    "full": (0.1, 0.22, 0.55),
    "full-standby": (0.1, 0.22, 0.08),
}


def llama(seeds: tuple[int, ...] = (1, 2, 3), policies: tuple[str, ...] = tuple(POLICIES)) -> Study:
    """2,048 nodes of eight GPUs for 54 days under some policies."""
    return Study(
        site="llama3-54d",
        summary="2,048 nodes of 8 GPUs, one synchronous job over all of them; 419 interruptions expected.",
        policies={name: POLICIES[name] for name in policies},
        seeds=seeds,
        runs=tuple(run(policy, seed) for policy in policies for seed in seeds),
    )


def small(policy: str, seed: int, **changes: object) -> RunResult:
    """A run of ten days on four nodes of two GPUs, with figures that can be added up by hand."""
    plain = RunResult(
        policy=policy,
        seed=seed,
        days=10.0,
        days_wanted=10.0,
        nodes=4,
        gpus_per_node=2,
        interruptions={"HBM": 3, "CPU": 1},
        out_hours_by_cause={"HBM": 36.0, "CPU": 12.0},
        out_hours_by_rung={"reboot": 8.0, "rma": 40.0},
        lost_gpu_hours={"rollback": 20.0, "restart": 10.0, "waiting": 66.0},
        lost_gpu_hours_by_cause={"HBM": 90.0, "CPU": 6.0},
        useful_gpu_hours=960.0,
        repairs=(Repair("n1", "HBM", 0.0, 3600.0, "reboot"), Repair("n2", "CPU", 0.0, 7200.0, "rma")),
        false_drains=1,
        actions={"reboot": 4, "rma": 1},
        peak_working=2,
        peak_out=3,
        pages=5,
        samples=(Sample(0.0, {"in_service": 4}), Sample(3600.0, {"in_service": 2, "reboot": 1, "rma": 1})),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def study(
    *runs: RunResult, policies: Mapping[str, str] | None = None, seeds: tuple[int, ...] = (), **changes: bool
) -> Study:
    """A study of some runs; policies and seeds are theirs where not given."""
    return Study(
        site="small",
        summary="four nodes",
        policies=dict.fromkeys((one.policy for one in runs), "") if policies is None else policies,
        seeds=seeds or tuple(sorted({one.seed for one in runs})),
        runs=runs,
        partial=changes.get("partial", False),
    )


def run(policy: str, seed: int, days: float = 54.0, nodes: int = 2048) -> RunResult:
    """One run: faults by seed alone, what becomes of them by policy."""
    faults = stream(seed, "fleet", "faults")
    delay_h, to_rma, wait_h = _MANNERS[policy]
    repairs: list[Repair] = []
    rungs = dict.fromkeys(("draining", "waiting", "reboot", "reimage", "verify", "rma", "person"), 0.0)
    causes: dict[str, int] = {}
    out_by_cause: dict[str, float] = {}
    events: list[tuple[float, float, str]] = []
    for cause, count in CAUSES.items():
        for number in range(max(1, round(faults.gauss(count, math.sqrt(count))))):
            began = faults.uniform(0.0, days * DAY_S)
            chance = faults.random()
            stages = _stages(chance, delay_h, to_rma, policy, stream(seed, f"{cause}{number}", policy))
            repairs.append(_repair(f"n{faults.randrange(nodes):04d}", cause, began, stages, days))
            at = began
            for rung, hours in stages:
                end = min(at + hours * 3600.0, days * DAY_S)
                rungs[rung] += max(0.0, end - at) / 3600.0
                out_by_cause[cause] = out_by_cause.get(cause, 0.0) + max(0.0, end - at) / 3600.0
                events.append((at, end, rung))
                at = end
            causes[cause] = causes.get(cause, 0) + 1
    interrupted = sum(causes.values())
    gpus = nodes * 8
    luck = stream(seed, "fleet", "luck").uniform(0.94, 1.06)
    lost = {
        "rollback": interrupted * gpus * 0.25 * luck,
        "restart": interrupted * gpus * 0.12 * luck,
        "waiting": interrupted * gpus * wait_h * luck,
    }
    total = sum(lost.values())
    return RunResult(
        policy=policy,
        seed=seed,
        days=days,
        days_wanted=days,
        nodes=nodes,
        gpus_per_node=8,
        interruptions=causes,
        out_hours_by_cause=out_by_cause,
        out_hours_by_rung={key: hours for key, hours in rungs.items() if hours},
        lost_gpu_hours=lost,
        lost_gpu_hours_by_cause={cause: total * count / interrupted for cause, count in causes.items()},
        useful_gpu_hours=days * 24 * gpus - total,
        standby_gpu_hours=days * 24 * gpus * 0.02 if policy == "full-standby" else 0.0,
        repairs=tuple(sorted(repairs, key=lambda repair: repair.began_s)),
        false_drains=faults.randrange(4),
        actions=_actions(policy, interrupted),
        peak_working=3 + seed,
        peak_out=max(_out_at(events, hour * 3600.0) for hour in range(int(days * 24))),
        pages=interrupted if policy == "manual" else round(interrupted * to_rma),
        samples=_samples(events, days, nodes),
        ticks=41000 + seed,
        events=2_345_678,
        wall_s=48.2,
    )


def _stages(
    chance: float, delay_h: float, to_rma: float, policy: str, luck: random.Random
) -> list[tuple[str, float]]:
    stages = [("draining", 0.05 + luck.expovariate(8.0)), ("waiting", luck.expovariate(1.0 / delay_h))]
    if policy == "manual":
        stages += [("person", luck.lognormvariate(0.3, 0.6))]
    else:
        stages += [("reboot", 0.15 + luck.expovariate(20.0)), ("verify", 0.2)]
    if policy.startswith("full") and chance < 0.45:
        stages += [("reimage", 0.7 + luck.expovariate(5.0)), ("verify", 0.2)]
    if policy == "reboot-only" and chance < 0.6:
        stages += [("person", luck.lognormvariate(1.5, 0.8))]
    if chance < to_rma:
        stages += [("rma", luck.uniform(5 * 24, 14 * 24)), ("verify", 0.3)]
    return stages


def _repair(node: str, cause: str, began: float, stages: list[tuple[str, float]], days: float) -> Repair:
    ended = began + sum(hours for _, hours in stages) * 3600.0
    cured = [rung for rung, _ in stages if rung in ("reboot", "reimage", "rma", "person")]
    if ended > days * DAY_S:
        return Repair(node, cause, began, None, "")
    return Repair(node, cause, began, ended, cured[-1])


def _actions(policy: str, faults: int) -> Mapping[str, int]:
    if policy == "manual":
        return {}
    actions = {"drain": faults, "reboot": faults, "undrain": round(faults * 0.8)}
    return (
        {**actions, "reimage": round(faults * 0.45), "rma": round(faults * 0.2)}
        if "full" in policy
        else actions
    )


def _out_at(events: list[tuple[float, float, str]], at: float) -> int:
    return sum(1 for begin, end, _ in events if begin <= at < end)


def _samples(events: list[tuple[float, float, str]], days: float, nodes: int) -> tuple[Sample, ...]:
    names = {"verify": "verifying", "reboot": "repairing", "reimage": "repairing"}
    samples = []
    for hour in range(int(days * 24)):
        at = hour * 3600.0
        counts: dict[str, int] = {}
        for begin, end, rung in events:
            if begin <= at < end:
                state = names.get(rung, rung)
                counts[state] = counts.get(state, 0) + 1
        samples.append(Sample(at, {"in_service": nodes - sum(counts.values()), **counts}))
    return tuple(samples)
