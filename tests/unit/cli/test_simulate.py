"""`simulate`: the table, JSON and the report; mistakes in one line; Ctrl-C leaves partial results."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurm_lifecycle.cli.main import cli
from slurm_lifecycle.core.model import Phase
from slurm_lifecycle.core.plan import NodeStatus, Plan
from tests.architecture.source import ROOT
from tests.unit.cli.conftest import Site
from tests.unit.simulation.test_history import incidents

SITE = """
summary = "a tiny site"
nodes = 12
days = 1
nodes_per_domain = 4
[failures]
scale = 20.0
[[jobs]]
name = "gang"
count = 1
nodes_min = 6
nodes_max = 8
"""


def simulate(*arguments: str) -> Result:
    # No configuration is there, and none is needed.
    return CliRunner().invoke(cli, ["--config", "/nonexistent.toml", "simulate", *arguments])


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(SITE, encoding="utf-8")
    return str(path)


def test_the_shipped_sites_and_policies_are_listed() -> None:
    said = simulate("--list")
    assert said.exit_code == 0
    for name in ("llama3-54d", "mixed-512", "driver-rollout", "manual", "reboot-only", "full-standby"):
        assert name in said.stdout
    listed = json.loads(simulate("--list", "--json").stdout)
    assert listed["scenarios"]["llama3-54d"]["days"] == 54
    assert list(listed["policies"]) == ["manual", "reboot-only", "full", "full-standby"]


def test_a_table_of_all_policies(tiny: str) -> None:
    said = simulate("--site", tiny)
    assert said.exit_code == 0, said.output
    header = next(line for line in said.stdout.splitlines() if "manual" in line)
    assert header.split() == ["manual", "reboot-only", "full", "full-standby"]
    for label in (
        "GPU-hours lost",
        "interruptions",
        "node-hours out",
        "half back within",
        "pages",
        "hot standby",
    ):
        assert label in said.stdout
    assert "tiny: a tiny site" in said.stdout
    assert "PARTIAL" not in said.stdout
    assert "no effect in this release: diagnose, gpu_reset, power" in said.stdout
    assert said.stderr.count(": done") == 4


def test_json_holds_every_run(tiny: str) -> None:
    said = simulate(
        "--site",
        tiny,
        "--policy",
        "full",
        "--policy",
        "manual",
        "--seeds",
        "2",
        "--first-seed",
        "5",
        "--json",
    )
    study = json.loads(said.stdout)
    assert study["partial"] is False
    assert study["seeds"] == [5, 6]
    assert [(run["policy"], run["seed"], run["complete"]) for run in study["runs"]] == [
        ("full", 5, True),
        ("manual", 5, True),
        ("full", 6, True),
        ("manual", 6, True),
    ]
    assert study["runs"][0]["nodes"] == 12
    assert len(study["runs"][0]["samples"]) == 25


def test_a_report_is_written(tiny: str, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    said = simulate("--site", tiny, "--policy", "full", "--html", str(report))
    assert said.exit_code == 0, said.output
    assert f"report: {report}" in said.stdout
    text = report.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") or text.startswith("<!DOCTYPE html>")
    assert "a tiny site" in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--scenario", "llama"), "scenario 'llama': no such name"),
        (("--policy", "everything"), "policy 'everything': no such name"),
        (("--scenario", "mixed-512", "--site", "x.toml"), "give one of them"),
        (("--site", "/nonexistent/site.toml"), "/nonexistent/site.toml: no such file"),
        (("--days", "0"), "--days: 0 is not between"),
        (("--days", "nan"), "--days: nan is not between"),
        (("--days", "1e9"), "--days: 1000000000 is not between"),
        (("--days", "400", "--seeds", "1000"), "node-days; at most"),
        (("--html", "/nonexistent/r.html"), "no folder /nonexistent"),
        (("--html", "/"), "that is a folder"),
        (("--rates-from-store",), "/nonexistent.toml: no such file"),
        (("--scenario", ""), "scenario '': no such name"),
        (("--days", "400.0001"), "400.0001 is not between"),
        (("--html", "-"), "the report is not printed"),
        (("--html", "/dev/full"), "not a plain file"),
        (("--html", "/tmp/" + "x" * 300), "--html /tmp/xxx"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(arguments: tuple[str, ...], told: str) -> None:
    said = simulate(*arguments)
    assert said.exit_code == 2
    assert told in said.stderr
    assert said.stderr.startswith("slurm-lifecycle: ")
    assert said.stderr.count("\n") == 1
    assert said.stdout == ""


@pytest.mark.parametrize(
    "arguments", [("--seeds", "0"), ("--jobs", "0"), ("--jobs", "10000"), ("--seeds", "x")]
)
def test_figures_out_of_range_are_refused(arguments: tuple[str, ...]) -> None:
    assert simulate(*arguments).exit_code == 2


def test_rates_of_the_sites_own_store(site: Site, tiny: str) -> None:
    cases = [
        replace(one, closed_at=one.opened_at + 60.0, outcome="returned", step_since=one.opened_at)
        for one in incidents(*["XID79"] * 20, *["KILL_TASK"] * 3)
    ]
    statuses = tuple(NodeStatus(f"n{number}", Phase.IN_SERVICE, "") for number in range(25))
    with site.acting() as store:
        store.apply(Plan(incidents=tuple(cases), statuses=statuses), 0.0)
        store.note_tick(40 * 86_400.0, "act")
    path = site.folder / "store.db"
    content = path.read_bytes()
    said = site.run("simulate", "--site", tiny, "--policy", "full", "--rates-from-store")
    assert said.exit_code == 0, said.output
    assert (
        "rates from 20 incidents in 1,000 node-days; no kind of fault stands for: KILL_TASK 3" in said.stderr
    )
    assert path.read_bytes() == content
    assert json.loads(simulate("--site", tiny, "--policy", "full", "--json").stdout)["runs"]


def test_a_store_with_too_little_in_it_is_refused(site: Site, tiny: str) -> None:
    with site.acting():
        pass
    said = site.run("simulate", "--site", tiny, "--rates-from-store")
    assert said.exit_code == 2
    assert "the store holds 0 incidents" in said.stderr


def test_a_report_never_takes_the_place_of_what_is_read(tiny: str, tmp_path: Path) -> None:
    before = Path(tiny).read_text(encoding="utf-8")
    link = tmp_path / "link.html"
    link.symlink_to(tiny)
    for target in (tiny, str(link)):
        said = simulate("--site", tiny, "--policy", "full", "--html", target)
        assert said.exit_code == 2
        assert "that is read by this run" in said.stderr
    assert Path(tiny).read_text(encoding="utf-8") == before


def test_a_link_that_leads_nowhere_is_found_before_the_run(tiny: str, tmp_path: Path) -> None:
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "nowhere" / "r.html")
    said = simulate("--site", tiny, "--html", str(link))
    assert said.exit_code == 2
    assert "nowhere; make it first" in said.stderr
    assert "done" not in said.stderr


def test_a_report_that_cannot_be_written_in_the_end_costs_no_result(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    said = simulate("--site", tiny, "--policy", "full", "--html", str(tmp_path / "r.html"), "--json")
    assert said.exit_code == 2
    assert json.loads(said.stdout)["runs"]
    assert "cannot be written: No space left on device" in said.stderr


def test_rates_at_which_no_run_ends_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "hot.toml"
    path.write_text("nodes = 20000\ndays = 20\n[failures]\nscale = 10000.0\n", encoding="utf-8")
    said = simulate("--site", str(path))
    assert said.exit_code == 2
    assert "hot: failures: " in said.stderr
    assert said.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("redirect", "code", "printed"),
    [
        (">&-", 0, ""),
        ("2>&-", 0, "GPU-hours lost"),
        ("2>/dev/full", 0, "GPU-hours lost"),
        (">/dev/full", 2, "the results cannot be printed: No space left on device"),
    ],
)
def test_outputs_that_are_closed_or_full(tiny: str, redirect: str, code: int, printed: str) -> None:
    run = f"{sys.executable} -c 'from slurm_lifecycle.cli.main import main; main()' simulate"
    said = subprocess.run(
        ["bash", "-c", f"{run} --site {tiny} --policy full {redirect}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == code
    assert printed in said.stdout + said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_folder_that_was_removed_meanwhile(tiny: str, tmp_path: Path, jobs: str) -> None:
    run = f"{sys.executable} -c 'from slurm_lifecycle.cli.main import main; main()' simulate"
    gone = tmp_path / "gone"
    gone.mkdir()
    said = subprocess.run(
        ["bash", "-c", f"rmdir {gone}; {run} --site {tiny} --policy full --seeds 2 --jobs {jobs}"],
        cwd=gone,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 2
    assert "the present folder is not there any more" in said.stderr
    assert "Traceback" not in said.stderr


def started(tiny: str, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "from slurm_lifecycle.cli.main import main; main()", "simulate"]
    return subprocess.Popen(
        [*command, "--site", tiny, "--days", "100", "--seeds", "200", "--jobs", "2", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Under nohup a process and its children are deaf to SIGHUP.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509
    )


def wait_for_children(process: "subprocess.Popen[str]") -> None:
    """Until the study has begun to start its processes; however slow the machine is."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 60
    while not children.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.2])
def test_a_signal_to_all_processes_while_they_start_or_run(
    tiny: str, kind: signal.Signals, after_s: float
) -> None:
    with started(tiny, "--json") as process:
        try:
            wait_for_children(process)
            time.sleep(after_s)
            os.killpg(process.pid, kind)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + kind
    assert "Traceback" not in err
    assert "killed" not in err
    assert json.loads(out)["partial"] is True


def test_workers_end_with_a_parent_that_was_killed(tiny: str) -> None:
    with started(tiny) as process:
        assert process.stderr is not None
        assert process.stderr.readline().endswith(": done\n")
        process.kill()
        # Its workers hold the same pipes: this ends when they have.
        process.communicate(timeout=60)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_leaves_partial_results_clearly_marked(tmp_path: Path, jobs: str) -> None:
    site, report = tmp_path / "tiny.toml", tmp_path / "r.html"
    site.write_text(SITE, encoding="utf-8")
    command = [sys.executable, "-c", "from slurm_lifecycle.cli.main import main; main()", "simulate"]
    options = ["--site", str(site), "--days", "100", "--seeds", "200", "--jobs", jobs, "--html", str(report)]
    with subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().endswith(": done\n")
        # As a terminal does: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "stopped before the end: these figures are partial" in err
    assert "PARTIAL: " in out
    assert "missing" in out
    assert "artial" in report.read_text(encoding="utf-8")


def test_nothing_heavy_is_loaded_for_its_help() -> None:
    code = (
        "import sys\nfrom slurm_lifecycle.cli.main import cli\n"
        "try:\n    cli(['simulate', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('slurm_lifecycle.simulation')))\n"
        "print(sorted({'pydantic', 'sqlalchemy', 'rich', 'jinja2'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.splitlines()[-2:] == ["[]", "[]"]
