"""One trouble of a GPU is drained for once, in however many ways it shows."""

from slurm_lifecycle.node.drain import wanted
from slurm_lifecycle.node.findings import Finding, Sign


def _finding(code: str, component: str) -> Finding:
    return Finding("check", Sign(code, component), f"{code}-{component}", 1.0, 1.0)


def test_second_sign_of_a_drained_gpu_is_no_reason_unless_it_is_worse() -> None:
    first = _finding("XID79", "gpu3")
    done = frozenset({first.occurrence})
    later = [_finding("GPU_LOST", "gpu3"), _finding("XID48", "gpu3")]
    assert wanted([first, *later], done) == ()
    other, worse = _finding("XID79", "gpu5"), _finding("REMAP_FAILURE", "gpu3")
    assert set(wanted([first, *later, other, worse], done)) == {other, worse}
    # What was drained for and is gone covers nothing any more.
    assert wanted(later, done) != ()
