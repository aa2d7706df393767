"""Figures for Prometheus, on a loopback port: what the last tick saw, and counts since the daemon started."""

import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from slurm_lifecycle.core.model import Attempt, Incident, Phase, Records, Step
from slurm_lifecycle.core.plan import Plan
from slurm_lifecycle.errors import ConfigError

_PREFIX = "slurm_lifecycle"
# Up to the target for the largest fleet (0.5 s) finely, then up to a tick's interval.
_TICK_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What the gauges show; replaced as a whole, so that a scrape never sees half of a tick."""

    nodes: dict[str, int] = field(default_factory=dict)
    incidents: dict[tuple[str, str], int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    trips: tuple[str, ...] = ()


class Metrics:
    """All figures of one daemon."""

    def __init__(self) -> None:
        """Make the figures; nothing listens yet."""
        registry = CollectorRegistry()
        self.registry = registry
        self._snapshot = _Snapshot()
        self._counted: set[str] | None = None
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None
        ProcessCollector(registry=registry)
        registry.register(_Gauges(lambda: self._snapshot))
        self._ticks = Counter(f"{_PREFIX}_ticks", "Ticks that were finished.", registry=registry)
        self._failures = Counter(
            f"{_PREFIX}_tick_failures",
            "Ticks without action, by kind of failure.",
            ["kind"],
            registry=registry,
        )
        self._seconds = Histogram(
            f"{_PREFIX}_tick_seconds", "Time of a tick.", buckets=_TICK_BUCKETS_S, registry=registry
        )
        self._last = Gauge(
            f"{_PREFIX}_last_tick_timestamp_seconds", "When the last tick was finished.", registry=registry
        )
        self._actions = Counter(
            f"{_PREFIX}_plan_actions", "Actions that plans held, by kind.", ["action"], registry=registry
        )
        self._attempts = Counter(
            f"{_PREFIX}_attempts",
            "Attempts that ended, by rung and outcome.",
            ["rung", "outcome"],
            registry=registry,
        )

    def serve(self, port: int, address: str = "127.0.0.1") -> None:
        """Answer scrapes from a thread of its own.

        Raises:
            ConfigError: the port is taken or not allowed.
        """
        try:
            self._server, self._thread = start_http_server(port, address, self.registry)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"daemon.metrics_port: {address}:{port} cannot be used ({error}): set another one, or 0"
            ) from error

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(5)
            self._server = None

    def record_tick(self, *, plan: Plan, records: Records, seconds: float, at: float) -> None:
        """Take in a finished tick.

        Args:
            plan: what it decided.
            records: what it started from.
            seconds: how long it took.
            at: when it was.
        """
        incidents = _incidents_after(records, plan)
        held = [one.hold or "other" for one in incidents if one.step is Step.HELD]
        self._snapshot = _Snapshot(
            nodes=dict(Tally(status.phase.value for status in plan.statuses)),
            incidents=dict(Tally((one.step.value, one.fault_class.value) for one in incidents)),
            held=dict(Tally(held)),
            waiting=len({one.node for one in plan.held}),
            trips=_trips_after(records, plan),
        )
        for action in plan.actions:
            self._actions.labels(type(action).__name__).inc()
        self._count_attempts((*records.attempts, *plan.attempts))
        self._ticks.inc()
        self._seconds.observe(seconds)
        self._last.set(at)

    def record_failure(self, kind: str) -> None:
        """Take in a tick that came to nothing; `kind` is a stable word."""
        self._failures.labels(kind).inc()

    def _count_attempts(self, attempts: Iterable[Attempt]) -> None:
        """Count each end once. Those that had ended before the first tick belong to an earlier daemon."""
        ended = {one.op_id: one for one in attempts if one.outcome is not None}
        known = self._counted
        if known is not None:
            for op_id, one in ended.items():
                if op_id not in known and one.outcome is not None:
                    self._attempts.labels(one.rung.value, one.outcome.value).inc()
        # Records hold the last seven days, so this does not grow.
        self._counted = set(ended)


class _Gauges(Collector):
    """Makes gauges of a snapshot when a scrape asks."""

    def __init__(self, snapshot: Callable[[], _Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[GaugeMetricFamily]:
        now = self._snapshot()
        nodes = GaugeMetricFamily(f"{_PREFIX}_nodes", "Nodes by phase.", labels=["phase"])
        for phase in Phase:
            nodes.add_metric([phase.value], now.nodes.get(phase.value, 0))
        yield nodes
        incidents = GaugeMetricFamily(
            f"{_PREFIX}_incidents", "Open incidents by step and fault class.", labels=["step", "fault_class"]
        )
        for (step, fault_class), count in sorted(now.incidents.items()):
            incidents.add_metric([step, fault_class], count)
        yield incidents
        held = GaugeMetricFamily(
            f"{_PREFIX}_held_incidents", "Incidents that wait for a person, by reason.", labels=["reason"]
        )
        for reason, count in sorted(now.held.items()):
            held.add_metric([reason], count)
        yield held
        yield GaugeMetricFamily(
            f"{_PREFIX}_nodes_waiting",
            "Nodes that would be acted on but for a limit or rule.",
            value=now.waiting,
        )
        tripped = GaugeMetricFamily(
            f"{_PREFIX}_breaker_tripped",
            "1 for each scope in which no new repair is started.",
            labels=["scope"],
        )
        # Always there, so that an alarm on it does not depend on a series that comes and goes.
        for scope in sorted({"fleet", *now.trips}):
            tripped.add_metric([scope], 1 if scope in now.trips else 0)
        yield tripped


def _incidents_after(records: Records, plan: Plan) -> list[Incident]:
    by_id = {one.id: one for one in records.incidents.values()} | {one.id: one for one in plan.incidents}
    return [one for one in by_id.values() if one.step is not Step.CLOSED]


def _trips_after(records: Records, plan: Plan) -> tuple[str, ...]:
    by_key = {(one.scope, one.tripped_at): one for one in (*records.trips, *plan.trips)}
    return tuple(sorted({one.scope for one in by_key.values() if one.reset_at is None}))
