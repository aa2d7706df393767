"""The figures as a scrape over the loopback port sees them."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from urllib.request import urlopen

import pytest

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import Attempt, AttemptOutcome, Incident, Phase, Records, Rung, Step, Trip
from slurm_lifecycle.core.plan import Drain, Held, NodeStatus, Plan
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service.metrics import Metrics

NOW = 1_800_000_000.0


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def metrics(port: int) -> Iterator[Metrics]:
    made = Metrics()
    made.serve(port)
    yield made
    made.close()


def _scrape(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name.removeprefix("slurm_lifecycle_"): float(value) for name, value in pairs}


def _incident(node: str, step: Step, hold: str = "") -> Incident:
    return Incident(f"{node}.1", node, FaultClass.REBOOT, "XID79", "gpu3", step, NOW, NOW, hold=hold)


def _attempt(node: str, outcome: AttemptOutcome | None = None) -> Attempt:
    ended = None if outcome is None else NOW
    return Attempt(
        f"{node}.1.reboot.1", f"{node}.1", node, Rung.REBOOT, 1, NOW, NOW, outcome=outcome, ended_at=ended
    )


def test_a_tick_is_seen_by_a_scrape(metrics: Metrics, port: int) -> None:
    before, held = _incident("n1", Step.DRAINING), _incident("n3", Step.HELD, "foreign")
    records = Records(
        incidents={"n1": before, "n2": _incident("n2", Step.RETURNING), "n3": held},
        trips=(Trip("domain:rack1", NOW, "5 nodes"), Trip("fleet", NOW - 50, "old", reset_at=NOW)),
    )
    plan = Plan(
        incidents=(
            replace(before, step=Step.REPAIRING),
            replace(_incident("n2", Step.CLOSED), closed_at=NOW),
        ),
        actions=(Drain("n1", "slc:XID79"), Drain("n2", "slc:XID79")),
        held=(Held("n4", "budget"), Held("n4", "window"), Held("n5", "budget")),
        statuses=(
            NodeStatus("n1", Phase.WORKING, ""),
            NodeStatus("n2", Phase.IN_SERVICE, ""),
            NodeStatus("n3", Phase.FOREIGN, ""),
        ),
    )
    metrics.record_tick(plan=plan, records=records, seconds=0.04, at=NOW)
    seen = _scrape(port)
    assert seen['nodes{phase="working"}'] == 1
    assert seen['nodes{phase="gone"}'] == 0
    assert seen['incidents{fault_class="reboot",step="repairing"}'] == 1
    assert 'incidents{fault_class="reboot",step="draining"}' not in seen
    assert 'incidents{fault_class="reboot",step="returning"}' not in seen
    assert seen['held_incidents{reason="foreign"}'] == 1
    assert seen["nodes_waiting"] == 2
    assert seen['breaker_tripped{scope="domain:rack1"}'] == 1
    assert seen['breaker_tripped{scope="fleet"}'] == 0
    assert seen['plan_actions_total{action="Drain"}'] == 2
    assert seen["ticks_total"] == 1
    assert seen['tick_seconds_bucket{le="0.05"}'] == 1
    assert seen['tick_seconds_bucket{le="0.025"}'] == 0
    assert seen["last_tick_timestamp_seconds"] == NOW
    metrics.record_tick(plan=Plan(), records=Records(), seconds=0.01, at=NOW + 10)
    after = _scrape(port)
    assert 'held_incidents{reason="foreign"}' not in after
    assert after["ticks_total"] == 2


def test_each_end_of_an_attempt_is_counted_once(metrics: Metrics, port: int) -> None:
    old = _attempt("n0", AttemptOutcome.FAILED)
    metrics.record_tick(plan=Plan(), records=Records(attempts=(old, _attempt("n1"))), seconds=0, at=NOW)
    done = _attempt("n1", AttemptOutcome.SUCCEEDED)
    metrics.record_tick(
        plan=Plan(attempts=(done,)), records=Records(attempts=(old, _attempt("n1"))), seconds=0, at=NOW
    )
    # Ended at the edge: it was never in a plan, the records of a later tick show it.
    edge = _attempt("n2", AttemptOutcome.CANCELLED)
    for _ in range(3):
        metrics.record_tick(plan=Plan(), records=Records(attempts=(old, done, edge)), seconds=0, at=NOW)
    seen = _scrape(port)
    assert seen['attempts_total{outcome="succeeded",rung="reboot"}'] == 1
    assert seen['attempts_total{outcome="cancelled",rung="reboot"}'] == 1
    assert 'attempts_total{outcome="failed",rung="reboot"}' not in seen


def test_failures_are_counted_by_kind(metrics: Metrics, port: int) -> None:
    metrics.record_failure("TransientError")
    metrics.record_failure("TransientError")
    metrics.record_failure("invariant")
    seen = _scrape(port)
    assert seen['tick_failures_total{kind="TransientError"}'] == 2
    assert seen['tick_failures_total{kind="invariant"}'] == 1
    assert seen["ticks_total"] == 0


def test_a_taken_port_is_one_line_with_the_setting(metrics: Metrics, port: int) -> None:
    with pytest.raises(ConfigError, match=r"daemon\.metrics_port: 127\.0\.0\.1:\d+ cannot be used") as taken:
        Metrics().serve(port)
    assert "\n" not in str(taken.value)
    with pytest.raises(ConfigError):
        Metrics().serve(70000)


def test_only_loopback_listens(metrics: Metrics, port: int) -> None:
    with socket.socket() as probe:
        probe.settimeout(5)
        # Another address of this host, by a name that is always there.
        assert probe.connect_ex(("127.0.0.2", port)) != 0
