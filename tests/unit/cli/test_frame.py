"""Errors, exit codes, configuration, render and db."""

import json
import os
import pwd
import sqlite3
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_lifecycle.cli.context import actor
from slurm_lifecycle.cli.main import cli
from slurm_lifecycle.cli.output import ago, clean, plain, span
from slurm_lifecycle.core.policy import Mode
from tests.unit.cli.conftest import Site, record

ETC = Path(__file__).resolve().parents[3] / "etc"
READING = [
    ("status",),
    ("nodes",),
    ("node", "show", "n1"),
    ("node", "why", "n1"),
    ("incidents",),
    ("incident", "show", "n1.1"),
    ("breaker", "status"),
    ("rma", "list"),
]


@pytest.mark.parametrize(
    "arguments", [*READING, ("doctor",), ("config", "check"), ("config", "show"), ("daemon",)]
)
def test_a_missing_configuration_is_one_line_and_exit_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, ["--config", str(tmp_path / "none.toml"), *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("slurm-lifecycle: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", READING)
def test_a_missing_store_is_one_line_and_exit_3(site: Site, arguments: tuple[str, ...]) -> None:
    result = site.run(*arguments)
    assert result.exit_code == 3
    assert "start the daemon once" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_configuration_may_come_from_the_environment(site: Site) -> None:
    result = CliRunner().invoke(cli, ["config", "show"], env={"SLURM_LIFECYCLE_CONFIG": str(site.config)})
    assert result.exit_code == 0
    assert "policy.mode = act" in result.output


@pytest.mark.parametrize("arguments", [("nonsense",), ("node", "nonsense"), ("status", "--nonsense")])
def test_wrong_use_is_exit_2(site: Site, arguments: tuple[str, ...]) -> None:
    assert site.run(*arguments).exit_code == 2


def test_config_show_as_json_holds_everything(site: Site) -> None:
    told = json.loads(site.run("config", "show", "--json").output)
    assert told["policy"]["rungs"] == ["drain", "reboot", "return", "rma"]
    assert told["policy"]["paths"]["reboot"][0] == {"rung": "reboot", "attempts": 1, "deadline_s": 1800.0}
    assert told["store_path"] == str(site.folder / "store.db")


def test_config_check_of_a_good_site(site: Site) -> None:
    result = site.run("config", "check")
    assert result.exit_code == 0, result.output
    assert result.output == f"{site.config}: fine\n"


def test_config_check_finds_what_the_world_lacks(site: Site) -> None:
    text = site.config.read_text(encoding="utf-8").replace('["gpu"]', '["gpu", "gpo"]')
    text = text.replace('"rma"', '"gpu_reset"').replace("n[1-4]", "n[1-9]")
    site.config.write_text(f'{text}[notify]\ncommand = ["/no/such/pager"]\n', encoding="utf-8")
    (site.folder / "policy.toml").write_text("[budget.domain.rack7]\nmax_working = 1\n", encoding="utf-8")
    result = site.run("config", "check", "--json")
    assert result.exit_code == 1
    found = {(one["weight"], one["key"]): one["text"] for one in json.loads(result.output)["remarks"]}
    assert "/no/such/pager" in found["problem", "notify.command"]
    assert "gpo" in found["problem", "partitions"]
    assert "rack7" in found["problem", "budget.domain"]
    assert "gpu_reset" in found["note", "rungs"]
    assert "n5, n6, n7, n8, n9" in found["note", "domains"]


def test_config_check_says_that_tickets_would_lack_serial_numbers(site: Site) -> None:
    text = site.config.read_text(encoding="utf-8").replace('argv = ["true", "{node}"]', "")
    site.config.write_text(text, encoding="utf-8")
    result = site.run("config", "check")
    assert result.exit_code == 0
    assert "serial number" in result.output


def test_config_check_without_slurm_is_exit_3(site: Site) -> None:
    (site.folder / "nodes.txt").unlink()
    result = site.run("config", "check")
    assert result.exit_code == 3
    assert "Slurm could not be asked" in result.output


def test_config_check_sees_a_command_that_is_not_executable(site: Site) -> None:
    (site.folder / "squeue").chmod(0o644)
    result = site.run("config", "check")
    assert result.exit_code == 1
    assert "chmod 755" in result.output


def test_doctor_without_slurm_is_exit_3(site: Site) -> None:
    result = site.run("doctor")
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1


def test_doctor_tells_the_line_to_change(site: Site) -> None:
    settings = site.folder / "config.txt"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    settings.write_text(
        f"Configuration data as of {stamp}\nSLURM_VERSION           = 22.05.8\nPrologFlags = (null)\n"
        "ResumeTimeout           = 60 sec\nReturnToService         = 2\n",
        encoding="utf-8",
    )
    script = (
        f'#!/bin/sh\ncase "$*" in *config*) cat {settings} ;; *node*) cat {site.folder}/nodes.txt ;; esac\n'
    )
    (site.folder / "scontrol").write_text(script, encoding="utf-8")
    site.slurm_says(record("n1", "IDLE"))
    result = site.run("doctor")
    assert result.exit_code == 1
    assert "-> PrologFlags=Alloc" in result.output
    assert "-> ResumeTimeout=2100" in result.output
    told = json.loads(site.run("doctor", "--json").output)
    assert told["result"] == "fail"
    grades = {item["name"]: item["grade"] for item in told["items"]}
    assert grades["version"] == "ok"
    assert grades["return_to_service"] == "warn"
    assert grades["store"] == "ok"


def test_render_gives_what_is_shipped_in_etc(tmp_path: Path) -> None:
    runner = CliRunner()
    shipped = ["--config", str(ETC / "slurm-lifecycle.toml")]
    snippet = runner.invoke(cli, [*shipped, "render", "slurm-conf"])
    assert snippet.output == (ETC / "slurm.conf.snippet").read_text(encoding="utf-8")
    runner.invoke(cli, [*shipped, "render", "units", "--output", str(tmp_path)])
    for name in ("slurm-lifecycle.service", "slurm-lifecycle-agent.service"):
        made = (tmp_path / name).read_text(encoding="utf-8").replace(str(ETC), "/etc/slurm-lifecycle")
        assert made == (ETC / name).read_text(encoding="utf-8"), name


def test_render_follows_the_site(site: Site) -> None:
    (site.folder / "policy.toml").write_text(
        '[paths]\nreboot = [{ rung = "reboot", deadline = "45min" }]\n', encoding="utf-8"
    )
    text = site.run("render", "slurm-conf", "--hooks-dir", "/opt/h", "--reboot-program", "/opt/r").output
    assert "Prolog=/opt/h/prolog.sh" in text
    assert "RebootProgram=/opt/r" in text
    assert "ResumeTimeout=3000" in text
    out = site.folder / "out"
    result = site.run("render", "all", "--expected-gpus", "8", "--agent-mode", "drain", "--output", str(out))
    assert result.exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "agent.conf",
        "slurm-lifecycle-agent.service",
        "slurm-lifecycle.service",
        "slurm.conf.snippet",
    ]
    assert "expected_gpus = 8" in (out / "agent.conf").read_text(encoding="utf-8")
    assert f"ReadWritePaths={site.folder}\n" in (out / "slurm-lifecycle.service").read_text(encoding="utf-8")


def test_db_backup_while_the_daemon_acts_and_claim_only_without_it(site: Site) -> None:
    copy = site.folder / "copy.db"
    with site.acting():
        assert site.run("db", "backup", str(copy)).exit_code == 0
        refused = site.run("db", "claim")
        assert refused.exit_code == 3
        assert "stop that one first" in refused.stderr
    assert sqlite3.connect(copy).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert site.run("db", "claim").exit_code == 0
    assert "has this release's schema" in site.run("db", "upgrade").output


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h 0 min"),
        (180_000, "2 d 2 h"),
    ],
)
def test_lengths_of_time(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(("sudo_user", "told"), [("ada.l", "ada.l"), ("", None), ("x y\n", None)])
def test_who_asks(monkeypatch: pytest.MonkeyPatch, sudo_user: str, told: str | None) -> None:
    monkeypatch.setenv("SUDO_USER", sudo_user)
    monkeypatch.setenv("USER", "somebody-else")
    assert actor() == (told or pwd.getpwuid(os.getuid()).pw_name)


def test_times_and_texts() -> None:
    assert ago(None) == "never"
    assert ago(100.0, 160.0) == "60 s ago"
    assert clean("a\x1b[31m\nb\u202e") == "a?[31m b?"
    assert plain({Mode.ACT: frozenset({"b", "a"})}) == {"act": ["a", "b"]}
