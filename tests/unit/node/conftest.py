"""Fixtures of the node side: a fake driver library, a run directory, and an agent in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox.fake_nvml import FakeNvmlState, build

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def nvml_library_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    return build(tmp_path_factory.mktemp("nvml")).parent


@dataclass
class Node:
    """One pretended compute node."""

    root: Path
    gpus: FakeNvmlState
    library_dir: Path

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def kmsg(self) -> Path:
        return self.root / "kmsg"

    @property
    def config(self) -> Path:
        return self.root / "agent.conf"

    def configure(self, agent: str = "", checks: str = "expected_gpus=4") -> None:
        self.config.write_text(
            f"[agent]\nrun_dir={self.run_dir}\nkmsg={self.kmsg}\nnode_name=n1\nstop_file={self.root}/stop\n"
            f"{agent}\n[checks]\nfilesystems=/proc\n{checks}\n",
            encoding="utf-8",
        )

    def log(self, *lines: str, start_seq: int = 1) -> None:
        with self.kmsg.open("a", encoding="utf-8") as file:
            for seq, line in enumerate(lines, start_seq):
                file.write(f"4,{seq},{int(_uptime_us())},-;{line}\n")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "slurm_lifecycle.node", "--config", str(self.config), *arguments]

    def environment(self) -> dict[str, str]:
        path = os.environ.get("PATH", "/usr/bin:/bin")
        return {"PATH": path, "PYTHONPATH": str(ROOT), **self.gpus.environment(self.library_dir)}

    def once(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("--once", *arguments),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command(), env=self.environment(), stderr=subprocess.PIPE, text=True)

    def verdict(self) -> tuple[str, str, str]:
        """Level, code and text of the verdict file."""
        lines = (self.run_dir / "verdict").read_text(encoding="utf-8").splitlines()
        _version, level, _uptime, _boot, code, text = lines[0].split(" ", 5)
        return level, code, text


def _uptime_us() -> float:
    return float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) * 1e6


@pytest.fixture
def node(tmp_path: Path, nvml_library_dir: Path) -> Node:
    made = Node(tmp_path, FakeNvmlState(tmp_path / "gpus.state"), nvml_library_dir)
    made.gpus.write({"gpus": 4})
    made.kmsg.write_text("", encoding="utf-8")
    made.configure("channel=none")
    return made
