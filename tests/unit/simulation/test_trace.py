"""Traces: the same lines give the same hash, all lines count, those about a node are found."""

from slurm_lifecycle.simulation.safety.trace import Trace
from slurm_lifecycle.simulation.timeline import START_S


def made(lines: list[tuple[float, str, str]], kept: int = 100) -> Trace:
    trace = Trace(kept)
    for at, subject, text in lines:
        trace.add(START_S + at, subject, text)
    return trace


LINES = [(0.0, "n1", "a"), (1.5, "n2", "b"), (2.0, "", "c"), (3.0, "n1", "d")]


def test_same_lines_same_hash_and_no_other() -> None:
    digest = made(LINES).digest()
    assert made(LINES).digest() == digest
    assert made(LINES[::-1]).digest() != digest
    assert made([*LINES[:-1], (3.001, "n1", "d")]).digest() != digest
    assert made(LINES[:-1]).digest() != digest


def test_lines_that_are_not_kept_count_in_the_hash() -> None:
    trace = made(LINES, kept=2)
    assert trace.digest() == made(LINES).digest()
    assert trace.count == 4
    assert len(trace.about((), last=10)) == 2


def test_lines_about_nodes_come_with_those_about_nobody() -> None:
    trace = made(LINES)
    assert [line.split()[-1] for line in trace.about({"n1"}, last=10)] == ["a", "c", "d"]
    assert [line.split()[-1] for line in trace.about({"n1"}, last=2)] == ["c", "d"]
    assert trace.about({"n2"}, last=10)[0].split() == ["1.5", "n2", "b"]
