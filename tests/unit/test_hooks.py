"""The Slurm hooks, run as slurmd runs them: a bare environment, no PATH, and every kind of bad verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
PROLOG = _ROOT / "prolog" / "prolog.sh"
EPILOG = _ROOT / "epilog" / "epilog.sh"
HEALTHCHECK = _ROOT / "healthcheck" / "healthcheck.sh"
OTHER_BOOT = "00000000-0000-4000-8000-000000000000"


def _uptime_s() -> int:
    return int(float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]))


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _verdict(
    level: str = "drain", gate: str = "yes", *, age_s: int = 0, boot: str = "", end: str = "\n"
) -> str:
    code, text = ("-", "all checks passed") if level == "ok" else ("XID79", "gpu3 fell off the bus")
    return f"v1 {level} {_uptime_s() - age_s} {boot or _boot_id()} {code} {text}\ngate {gate}{end}"


def _run(hook: Path, run_dir: Path, job_id: str = "4711", **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"SLC_RUN_DIR": str(run_dir), "SLURM_JOB_ID": job_id, **more}
    return subprocess.run(
        [str(hook)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


BAD_VERDICTS = {
    "empty": "",
    "newline": "\n\n",
    "stale": None,
    "first line only": "v1 drain {up} {boot} XID79 gpu3 off the bus\n",
    "truncated second line": "v1 drain {up} {boot} XID79 gpu3 off the bus\ngate yes",
    "truncated first line": "v1 drain {up}",
    "other boot": f"v1 drain {{up}} {OTHER_BOOT} XID79 gpu3\ngate yes\n",
    "future": "v1 drain {future} {boot} XID79 gpu3\ngate yes\n",
    "huge time": "v1 drain 99999999999999999999999 {boot} XID79 gpu3\ngate yes\n",
    "negative time": "v1 drain -5 {boot} XID79 gpu3\ngate yes\n",
    "octal time": "v1 drain 0999 {boot} XID79 gpu3\ngate yes\n",
    "arithmetic in the time": "v1 drain uptime_s {boot} XID79 gpu3\ngate yes\n",
    "other version": "v2 drain {up} {boot} XID79 gpu3\ngate yes\n",
    "unknown level": "v1 panic {up} {boot} XID79 gpu3\ngate yes\n",
    "unknown gate": "v1 drain {up} {boot} XID79 gpu3\ngate maybe\n",
    "more on the gate line": "v1 drain {up} {boot} XID79 gpu3\ngate yes please\n",
    "garbage": "\x01\x02$(exit 1) `exit 1` ; exit 1\n*\n",
    "globs": "* * * * * *\n* *\n",
}


@pytest.mark.parametrize("name", BAD_VERDICTS)
@pytest.mark.parametrize(("hook", "marker"), [(PROLOG, "failopen.prolog"), (EPILOG, "failopen.epilog")])
def test_bad_verdict_fails_open(tmp_path: Path, name: str, hook: Path, marker: str) -> None:
    template = BAD_VERDICTS[name]
    if template is None:
        text = _verdict(age_s=121)
    else:
        text = template.replace("{up}", str(_uptime_s())).replace("{boot}", _boot_id())
        text = text.replace("{future}", str(_uptime_s() + 3600))
    (tmp_path / "verdict").write_text(text, encoding="utf-8")
    done = _run(hook, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "verdict" in (tmp_path / marker).read_text(encoding="utf-8")
    assert not (tmp_path / "refused.4711").exists()


@pytest.mark.parametrize("hook", [PROLOG, EPILOG])
def test_binary_noise_fails_open(tmp_path: Path, hook: Path) -> None:
    (tmp_path / "verdict").write_bytes(bytes(range(256)) * 64)
    assert _run(hook, tmp_path).returncode == 0


@pytest.mark.parametrize("hook", [PROLOG, EPILOG])
@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "no run directory", "dangling link"])
def test_no_verdict_file_fails_open(tmp_path: Path, hook: Path, kind: str) -> None:
    run_dir = tmp_path / "absent" if kind == "no run directory" else tmp_path
    if kind == "directory":
        (tmp_path / "verdict").mkdir()
    elif kind == "fifo":
        os.mkfifo(tmp_path / "verdict")
    elif kind == "dangling link":
        (tmp_path / "verdict").symlink_to(tmp_path / "nowhere")
    done = _run(hook, run_dir)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (("ok", "no", 0), 0),
        (("ok", "yes", 0), 0),
        (("warn", "yes", 0), 0),
        (("drain", "no", 0), 0),
        (("drain", "yes", 0), 1),
        (("drain", "yes", 115), 1),
    ],
)
@pytest.mark.parametrize("hook", [PROLOG, EPILOG])
def test_only_a_gated_drain_refuses(
    tmp_path: Path, hook: Path, verdict: tuple[str, str, int], code: int
) -> None:
    level, gate, age_s = verdict
    (tmp_path / "verdict").write_text(_verdict(level, gate, age_s=age_s), encoding="utf-8")
    assert _run(hook, tmp_path).returncode == code
    assert not list(tmp_path.glob("failopen.*"))


def test_refusal_says_why(tmp_path: Path) -> None:
    (tmp_path / "verdict").write_text(_verdict(), encoding="utf-8")
    assert _run(PROLOG, tmp_path).returncode == 1
    assert (tmp_path / "refused.4711").read_text(encoding="utf-8") == "XID79 gpu3 fell off the bus\n"


@pytest.mark.parametrize("job_id", ["", "../../etc/x", "4711; rm -rf /", "a b"])
def test_a_strange_job_id_writes_nothing(tmp_path: Path, job_id: str) -> None:
    (tmp_path / "verdict").write_text(_verdict(), encoding="utf-8")
    assert _run(PROLOG, tmp_path, job_id).returncode == 1
    assert _run(EPILOG, tmp_path, job_id).returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["verdict"]


def test_hostile_environment_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "verdict").write_text(_verdict("ok", "no"), encoding="utf-8")
    assert _run(PROLOG, tmp_path, IFS="1", LC_ALL="xx", ENV="/nonexistent", PATH="").returncode == 0


def test_epilog_records_the_end_and_is_idempotent(tmp_path: Path) -> None:
    (tmp_path / "verdict").write_text(_verdict("ok", "no"), encoding="utf-8")
    (tmp_path / "refused.4711").write_text("XID79 x\n", encoding="utf-8")
    (tmp_path / "refused.9").write_text("XID79 x\n", encoding="utf-8")
    for _ in range(2):
        assert _run(EPILOG, tmp_path).returncode == 0
    version, uptime_s, boot_id, job_id = (tmp_path / "job_end.4711").read_text(encoding="utf-8").split()
    assert (version, boot_id, job_id) == ("v1", _boot_id(), "4711")
    assert int(uptime_s) <= _uptime_s()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job_end.4711", "refused.9", "verdict"]


def test_epilog_keeps_the_refusal_of_a_broken_node(tmp_path: Path) -> None:
    (tmp_path / "verdict").write_text(_verdict(), encoding="utf-8")
    (tmp_path / "refused.4711").write_text("XID79 x\n", encoding="utf-8")
    assert _run(EPILOG, tmp_path).returncode == 1
    assert (tmp_path / "refused.4711").exists()


# ---------------------------------------------------------------- HealthCheckProgram


def _healthcheck(tmp_path: Path, *, agent: str = "", chain: str = "", chain_timeout_s: str = "2") -> Path:
    """A configuration whose agent and chain are scripts that leave a trace; returns the run directory."""
    run_dir = tmp_path / "run"
    run_dir.mkdir(exist_ok=True)
    lines = ["[agent]", "agent = /wrong/section", "[healthcheck]"]
    for name, body in (("agent", agent), ("chain", chain)):
        if body:
            script = tmp_path / f"{name}.sh"
            script.write_text(f'#!/bin/sh\necho $$ "$@" >>{tmp_path}/{name}.ran\n{body}\n', encoding="utf-8")
            script.chmod(0o755)
            lines.append(f"{name} = {script}" + (" agent" if name == "agent" else ""))
    lines.append(f"  chain_timeout_s={chain_timeout_s}  ")
    (tmp_path / "agent.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run_dir


def _run_healthcheck(tmp_path: Path) -> float:
    """Runs it with slurmd's environment; returns its wall time."""
    environment = {
        "SLURMD_NODENAME": "n1",
        "SLC_RUN_DIR": str(tmp_path / "run"),
        "SLC_AGENT_CONF": str(tmp_path / "agent.conf"),
    }
    begin = time.monotonic()
    done = subprocess.run(
        [str(HEALTHCHECK)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return time.monotonic() - begin


def _runs(tmp_path: Path, name: str) -> list[str]:
    trace = tmp_path / f"{name}.ran"
    return trace.read_text(encoding="utf-8").splitlines() if trace.exists() else []


def test_healthcheck_leaves_a_living_agent_alone(tmp_path: Path) -> None:
    run_dir = _healthcheck(tmp_path, agent="true")
    (run_dir / "verdict").write_text(_verdict("ok", "no", age_s=30), encoding="utf-8")
    _run_healthcheck(tmp_path)
    assert _runs(tmp_path, "agent") == []
    assert [path.name for path in run_dir.iterdir()] == ["verdict"]


@pytest.mark.parametrize("verdict", ["", "garbage", "old", "other boot", "missing"])
def test_healthcheck_runs_one_round_in_place_of_a_dead_agent(tmp_path: Path, verdict: str) -> None:
    run_dir = _healthcheck(tmp_path, agent="true")
    texts = {"old": _verdict("ok", "no", age_s=60), "other boot": _verdict("ok", "no", boot=OTHER_BOOT)}
    if verdict != "missing":
        (run_dir / "verdict").write_text(texts.get(verdict, verdict), encoding="utf-8")
    _run_healthcheck(tmp_path)
    (run,) = _runs(tmp_path, "agent")
    assert run.split()[1:] == ["agent", "--config", str(tmp_path / "agent.conf"), "--once", "--budget-s", "4"]
    assert not (run_dir / "healthcheck.lock").exists()


def test_healthcheck_runs_the_chain_first_and_ends_what_it_left(tmp_path: Path) -> None:
    run_dir = _healthcheck(tmp_path, agent="true", chain=f"sleep 300 & echo $! >{tmp_path}/child\nexit 3")
    (run_dir / "verdict").write_text(_verdict("ok", "no"), encoding="utf-8")
    _run_healthcheck(tmp_path)
    assert len(_runs(tmp_path, "chain")) == 1
    assert _runs(tmp_path, "agent") == []
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    assert _gone(child)


def _gone(pid: int) -> bool:
    for _ in range(20):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_healthcheck_ends_a_chain_that_ignores_term(tmp_path: Path) -> None:
    run_dir = _healthcheck(tmp_path, agent="true", chain="trap '' TERM\nwhile :; do sleep 1; done")
    assert _run_healthcheck(tmp_path) < 10
    assert "chain did not end within 2 s" in (run_dir / "failopen.healthcheck").read_text(encoding="utf-8")
    assert len(_runs(tmp_path, "agent")) == 1
    assert _gone(int(_runs(tmp_path, "chain")[0].split()[0]))


def test_one_healthcheck_at_a_time(tmp_path: Path) -> None:
    run_dir = _healthcheck(tmp_path, agent="true")
    holder = subprocess.Popen(["/bin/sleep", "30"])
    try:
        started = Path(f"/proc/{holder.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19]
        (run_dir / "healthcheck.lock").mkdir()
        owner = run_dir / "healthcheck.lock" / "owner"
        owner.write_text(f"{holder.pid} {started} {_boot_id()}\n", encoding="utf-8")
        _run_healthcheck(tmp_path)
        assert _runs(tmp_path, "agent") == []
        owner.write_text(f"{holder.pid} 1 {_boot_id()}\n", encoding="utf-8")  # the pid was used again
        _run_healthcheck(tmp_path)
        assert len(_runs(tmp_path, "agent")) == 1
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=5)


@pytest.mark.parametrize("owner", [None, "", f"1 0 {OTHER_BOOT}\n", "garbage\n"])
def test_a_stale_lock_is_taken_over(tmp_path: Path, owner: str | None) -> None:
    run_dir = _healthcheck(tmp_path, agent="true")
    (run_dir / "healthcheck.lock").mkdir()
    if owner is not None:
        (run_dir / "healthcheck.lock" / "owner").write_text(owner, encoding="utf-8")
    _run_healthcheck(tmp_path)
    assert len(_runs(tmp_path, "agent")) == 1
    assert not list(run_dir.glob("healthcheck.*"))


def test_a_stuck_chain_is_not_started_again(tmp_path: Path) -> None:
    run_dir = _healthcheck(tmp_path, agent="true", chain="true")
    holder = subprocess.Popen(["/bin/sleep", "30"])
    try:
        started = Path(f"/proc/{holder.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19]
        stuck = run_dir / "healthcheck.stuck.chain"
        stuck.write_text(f"{holder.pid} {started} {_boot_id()}\n", encoding="utf-8")
        _run_healthcheck(tmp_path)
        assert _runs(tmp_path, "chain") == []
        assert len(_runs(tmp_path, "agent")) == 1
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=5)
    _run_healthcheck(tmp_path)
    assert len(_runs(tmp_path, "chain")) == 1


def test_concurrent_healthchecks_run_the_agent_once(tmp_path: Path) -> None:
    _healthcheck(tmp_path, agent="sleep 1")
    environment = {"SLC_RUN_DIR": str(tmp_path / "run"), "SLC_AGENT_CONF": str(tmp_path / "agent.conf")}
    runs = [subprocess.Popen([str(HEALTHCHECK)], env=environment) for _ in range(6)]
    for run in runs:
        assert run.wait(timeout=30) == 0
    assert len(_runs(tmp_path, "agent")) == 1
