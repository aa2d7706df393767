"""Real Slurm for live tests: one sandbox a session, and more on demand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slurm_lifecycle.sandbox import preflight
from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.settings import SandboxError

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def _can_run() -> None:
    try:
        preflight.check()
    except SandboxError as problem:
        pytest.skip(str(problem))


def _fresh(**settings: Any) -> Sandbox:
    # The pid in the name lets two test runs work side by side.
    return Sandbox.create(name=f"t{os.getpid()}-{next(_numbers)}", **settings)


@pytest.fixture(scope="session")
def sandbox(_can_run: None) -> Iterator[Sandbox]:
    """Eight nodes with eight GPUs each and agents in mode `drain`; shared: leave it as you found it."""
    made = _fresh(boot_s=0.5)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def bare_sandbox(_can_run: None) -> Iterator[Sandbox]:
    """Eight nodes without agents."""
    made = _fresh(agent=False, boot_s=0.5, install_s=1.0, health_interval_s=0)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def new_sandbox(_can_run: None) -> Iterator[Callable[..., Sandbox]]:
    """Makes sandboxes of a test's own (not yet up); they are taken down after it."""
    made: list[Sandbox] = []

    def make(**settings: Any) -> Sandbox:
        one = _fresh(**{"agent": False, "boot_s": 0.5, "install_s": 1.0, "health_interval_s": 0, **settings})
        made.append(one)
        return one

    yield make
    for one in made:
        one.down()
