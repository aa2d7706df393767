"""Several policies on the same site and the same seeds, on one core or several."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from queue import Empty
from typing import Any

from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.simulation.lab.results import RunResult, Study
from slurm_lifecycle.simulation.lab.run import run_one
from slurm_lifecycle.simulation.lab.site import SimPolicy, Site

# How often the parent looks for progress and for a wish to stop.
_LOOK_EVERY_S = 0.2
OnProgress = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class Task:
    """One run to make: its place in the study, and what it is of."""

    index: int
    site: Site
    policy: SimPolicy
    seed: int
    days: float


@dataclass(slots=True)
class Stop:
    """A wish to stop: what runs ends early with what it has, and nothing new begins."""

    wanted: bool = False
    told: list[Callable[[], None]] = field(default_factory=list)

    def now(self) -> None:
        """Stop; may be called from a signal handler."""
        self.wanted = True
        for tell in self.told:
            tell()


def tasks_of(site: Site, policies: Sequence[SimPolicy], seeds: Sequence[int], days: float) -> list[Task]:
    """All runs of a study, seed by seed, so that a study that is stopped has whole seeds to compare."""
    pairs = [(seed, policy) for seed in seeds for policy in policies]
    return [Task(index, site, policy, seed, days) for index, (seed, policy) in enumerate(pairs)]


def run_study(
    site: Site,
    policies: Sequence[SimPolicy],
    seeds: Sequence[int],
    days: float,
    *,
    jobs: int = 1,
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
) -> Study:
    """Run every policy with every seed.

    Args:
        site: what is simulated.
        policies: side by side, each on the same faults and the same jobs.
        seeds: one run of each policy a seed.
        days: length of a run.
        jobs: processes; more than runs are not started.
        on_progress: told the place of a run in the study (see `tasks_of`) and how much of it is done, 0 to 1.
        stop: once it is wanted, the runs under way end with what they have.

    Returns:
        What ended, `partial` where that is not all.
    """
    tasks = tasks_of(site, policies, seeds, days)
    tell = on_progress or _quiet
    wish = stop or Stop()
    runs = _alone(tasks, tell, wish) if jobs <= 1 or len(tasks) == 1 else _together(tasks, jobs, tell, wish)
    order = {(task.policy.name, task.seed): task.index for task in tasks}
    found = sorted(runs, key=lambda run: order[run.policy, run.seed])
    return Study(
        site=site.name,
        summary=site.summary,
        policies={one.name: described(one) for one in policies},
        seeds=tuple(seeds),
        runs=tuple(found),
        partial=len(found) < len(tasks) or any(not run.complete for run in found),
    )


def _quiet(index: int, share: float) -> None:
    del index, share


def described(policy: SimPolicy) -> str:
    """What a policy does, and what of it has no effect in this release."""
    if not policy.passed_over or policy.operator:
        return policy.summary
    return f"{policy.summary} (no effect in this release: {', '.join(policy.passed_over)})"


def _alone(tasks: Sequence[Task], tell: OnProgress, stop: Stop) -> list[RunResult]:
    runs = []
    for task in tasks:
        if stop.wanted:
            break
        runs.append(_run(task, lambda share, task=task: tell(task.index, share), lambda: stop.wanted))  # type: ignore[misc]
    return runs


def _run(task: Task, tell: Callable[[float], None], stopped: Callable[[], bool]) -> RunResult:
    return run_one(task.site, task.policy, task.seed, task.days, on_progress=tell, stopped=stopped)


# ---------------------------------------------------------------- several processes

# What a terminal, `timeout` or a service manager sends to the whole group of processes.
_TO_THE_GROUP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_shared: dict[str, Any] = {}
_at_work = threading.Lock()


def _begin_worker(progress: "Queue[tuple[int, float]]", stop: Event) -> None:
    """In each worker: only the first process decides what a signal to all of them means."""
    for kind in _TO_THE_GROUP:
        signal.signal(kind, signal.SIG_IGN)
    _shared["progress"], _shared["stop"] = progress, stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for tasks for ever; what is under way cleans up first."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        with _at_work:
            os._exit(1)


def _work(task: Task) -> RunResult | None:
    progress, stop = _shared["progress"], _shared["stop"]
    parent = multiprocessing.parent_process()

    def stopped() -> bool:
        return bool(stop.is_set()) or (parent is not None and not parent.is_alive())

    with _at_work:
        if stopped():
            return None
        return _run(task, lambda share: progress.put((task.index, share)), stopped)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Processes started within inherit the mask: a signal that meets one before it is ready waits there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TO_THE_GROUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _together(tasks: Sequence[Task], jobs: int, tell: OnProgress, stop: Stop) -> list[RunResult]:
    # Spawned, not forked: a worker begins with nothing of its parent's threads, terminal or files.
    context = multiprocessing.get_context("spawn")
    # This starts the process that removes semaphores in the end, too.
    with _signals_held():
        progress: Queue[tuple[int, float]] = context.Queue()
        ending = context.Event()
    stop.told.append(ending.set)
    if stop.wanted:
        ending.set()
    with ProcessPoolExecutor(
        min(jobs, len(tasks)), mp_context=context, initializer=_begin_worker, initargs=(progress, ending)
    ) as pool:
        with _signals_held():
            waiting = {pool.submit(_work, task) for task in tasks}
        try:
            runs = [
                run for done in _as_they_end(waiting, progress, tell) if (run := done.result()) is not None
            ]
        except BrokenProcessPool:
            # The pool sends SIGTERM, which they leave to their parent.
            for worker in multiprocessing.active_children():
                worker.kill()
            raise ConfigError(
                "a process of the study was killed, for want of memory? Take fewer --jobs"
            ) from None
    progress.close()
    return runs


def _as_they_end(
    waiting: "set[Future[RunResult | None]]", progress: "Queue[tuple[int, float]]", tell: OnProgress
) -> "Iterator[Future[RunResult | None]]":
    while waiting:
        done, waiting = wait(waiting, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
        with contextlib.suppress(Empty):
            while True:
                tell(*progress.get_nowait())
        yield from done
