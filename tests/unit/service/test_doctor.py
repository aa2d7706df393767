"""Doctor: each precondition judged from facts, and the facts gathered from a host."""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from slurm_lifecycle.core.model import NodeView
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.core.preconditions import judge, worst
from slurm_lifecycle.core.site_facts import Grade, Precondition, Program, SiteFacts, paths, programs_named
from slurm_lifecycle.errors import StoreError, TransientError
from slurm_lifecycle.ports import Slurm
from slurm_lifecycle.service import doctor
from slurm_lifecycle.service.config import load_config

HOOKS = "/usr/libexec/slurm-lifecycle"
GOOD_CONFIG = {
    "SLURM_VERSION": "22.05.8",
    "SlurmUser": "slurm(64030)",
    "RebootProgram": "/usr/sbin/reboot",
    "ResumeTimeout": "2100 sec",
    "SlurmdTimeout": "300 sec",
    "ReturnToService": "0",
    "SuspendTime": "INFINITE",
    "PrologFlags": "Alloc",
    "Prolog": f"{HOOKS}/prolog.sh",
    "Epilog": f"{HOOKS}/epilog.sh",
    "HealthCheckProgram": f"{HOOKS}/healthcheck.sh",
    "HealthCheckInterval": "60 sec",
    "HealthCheckNodeState": "ANY,CYCLE",
    "PrologEpilogTimeout": "300",
    "SchedulerParameters": "bf_window=10,nohold_on_prolog_fail",
}
EXTRA = "slc1 0f8fad5b-d9cb-469f-a165-70867728950e 3 ok - -"
NODE = NodeView("n1", frozenset({"IDLE"}), extra=EXTRA, partitions=("gpu",), gpus=8)
FACTS = SiteFacts(
    config=GOOD_CONFIG,
    nodes={"n1": NODE},
    admin_level="",
    clock_skew_s=0.0,
    federation="",
    programs={"/usr/sbin/reboot": Program(executable=True, ours=False)},
)
POLICY = Policy(partitions=("gpu",), rungs=frozenset({"drain", "return", "reboot"}))


def _item(facts: SiteFacts, name: str, policy: Policy = POLICY) -> Precondition:
    found = [item for item in judge(facts, policy) if item.name == name]
    assert len(found) == 1, name
    return found[0]


def _with(**changes: str | None) -> SiteFacts:
    config = {key: value for key, value in {**GOOD_CONFIG, **changes}.items() if value is not None}
    return replace(FACTS, config=config)


def test_a_good_site_is_good_in_every_item() -> None:
    items = judge(FACTS, POLICY)
    assert [item.name for item in items if item.grade is not Grade.OK] == []
    assert len(items) == len({item.name for item in items})
    assert worst(items) is Grade.OK


@pytest.mark.parametrize(
    ("key", "value", "name", "grade", "remedy"),
    [
        ("SLURM_VERSION", "21.08.5", "version", Grade.FAIL, "22.05"),
        ("SLURM_VERSION", "23.02.1", "version", Grade.WARN, "observe"),
        ("SLURM_VERSION", "25.11.2", "version", Grade.OK, ""),
        ("SLURM_VERSION", "x", "version", Grade.UNKNOWN, ""),
        ("RebootProgram", "", "reboot_program", Grade.FAIL, "RebootProgram=/usr/sbin/reboot"),
        ("RebootProgram", "(null)", "reboot_program", Grade.FAIL, "RebootProgram=/usr/sbin/reboot"),
        ("RebootProgram", "/only/on/nodes", "reboot_program", Grade.UNKNOWN, ""),
        ("SlurmctldParameters", "reboot_from_controller", "reboot_program", Grade.WARN, "remove"),
        ("ResumeTimeout", "60 sec", "resume_timeout", Grade.FAIL, "ResumeTimeout=2100"),
        ("ResumeTimeout", "1800 sec", "resume_timeout", Grade.FAIL, "ResumeTimeout=2100"),
        ("ResumeTimeout", "1801 sec", "resume_timeout", Grade.OK, ""),
        ("ResumeTimeout", None, "resume_timeout", Grade.UNKNOWN, ""),
        ("SlurmdTimeout", "0 sec", "slurmd_timeout", Grade.WARN, "SlurmdTimeout=300"),
        ("ReturnToService", "1", "return_to_service", Grade.OK, ""),
        ("ReturnToService", "2", "return_to_service", Grade.WARN, "ReturnToService=0"),
        ("ReturnToService", "7", "return_to_service", Grade.UNKNOWN, ""),
        ("SuspendTime", "600 sec", "power_saving", Grade.WARN, "SuspendExcStates=DRAIN,DOWN"),
        ("PrologFlags", "(null)", "prolog_flags", Grade.FAIL, "PrologFlags=Alloc"),
        ("PrologFlags", "Serial", "prolog_flags", Grade.FAIL, "PrologFlags=Serial,Alloc"),
        ("PrologFlags", "DeferBatch", "prolog_flags", Grade.FAIL, "PrologFlags=DeferBatch,Alloc"),
        ("PrologFlags", "Contain,X11", "prolog_flags", Grade.OK, ""),
        ("Prolog", None, "prolog", Grade.FAIL, f"Prolog={HOOKS}/prolog.sh"),
        ("Prolog", "/site/prolog", "prolog", Grade.UNKNOWN, "/site/prolog"),
        ("Epilog", "", "epilog", Grade.FAIL, f"Epilog={HOOKS}/epilog.sh"),
        ("HealthCheckProgram", "", "healthcheck", Grade.FAIL, f"HealthCheckProgram={HOOKS}/healthcheck.sh"),
        ("HealthCheckInterval", "0 sec", "healthcheck_interval", Grade.FAIL, "HealthCheckInterval=60"),
        ("HealthCheckInterval", "3600 sec", "healthcheck_interval", Grade.WARN, "HealthCheckInterval=60"),
        ("HealthCheckNodeState", "IDLE,ALLOC", "healthcheck_state", Grade.WARN, "HealthCheckNodeState=ANY"),
        ("PrologEpilogTimeout", "65534", "hook_timeout", Grade.WARN, "PrologEpilogTimeout=300"),
        ("PrologEpilogTimeout", None, "hook_timeout", Grade.WARN, "PrologEpilogTimeout=300"),
        ("EpilogTimeout", "65534", "hook_timeout", Grade.WARN, "PrologEpilogTimeout=300"),
        ("SchedulerParameters", "a=1", "prolog_requeue", Grade.WARN, "=a=1,nohold_on_prolog_fail"),
        (
            "SchedulerParameters",
            "nohold_on_prolog_fail,extra_constraints",
            "extra_field",
            Grade.FAIL,
            "remove",
        ),
    ],
)
def test_one_setting_changes_one_judgement(
    key: str, value: str | None, name: str, grade: Grade, remedy: str
) -> None:
    item = _item(_with(**{key: value}), name)
    assert item.grade is grade
    assert remedy in item.remedy
    assert item.text


def test_reboot_settings_only_warn_until_reboot_is_a_rung() -> None:
    policy = replace(POLICY, rungs=frozenset({"drain"}))
    assert _item(_with(ResumeTimeout="60 sec"), "resume_timeout", policy).grade is Grade.WARN
    assert _item(_with(RebootProgram=""), "reboot_program", policy).grade is Grade.WARN


@pytest.mark.parametrize(
    ("user", "admin_level", "grade"),
    [
        ("root", None, Grade.OK),
        ("slurm", None, Grade.OK),
        ("ada", "Administrator", Grade.OK),
        ("ada", "Operator", Grade.FAIL),
        ("ada", "", Grade.FAIL),
        ("ada", None, Grade.UNKNOWN),
    ],
)
def test_rights(user: str, admin_level: str | None, grade: Grade) -> None:
    item = _item(replace(FACTS, user=user, admin_level=admin_level), "rights")
    assert item.grade is grade
    assert grade is Grade.OK or f"sacctmgr modify user {user} set AdminLevel=Admin" in item.remedy


@pytest.mark.parametrize(
    ("skew", "grade"),
    [
        (0.0, Grade.OK),
        (-2.0, Grade.OK),
        (5.0, Grade.WARN),
        (-5.0, Grade.WARN),
        (-31.0, Grade.FAIL),
        (None, Grade.UNKNOWN),
    ],
)
def test_clock(skew: float | None, grade: Grade) -> None:
    assert _item(replace(FACTS, clock_skew_s=skew), "clock").grade is grade


@pytest.mark.parametrize(
    ("federation", "grade"), [("", Grade.OK), ("fed1", Grade.FAIL), (None, Grade.UNKNOWN)]
)
def test_federations_are_refused(federation: str | None, grade: Grade) -> None:
    assert _item(replace(FACTS, federation=federation), "federation").grade is grade


@pytest.mark.parametrize(
    ("program", "grade"),
    [
        (Program(executable=True, ours=True), Grade.OK),
        (Program(executable=True, ours=False), Grade.FAIL),
        (Program(executable=False, ours=True), Grade.FAIL),
        (Program(), Grade.UNKNOWN),
    ],
)
def test_a_sites_own_prolog_must_call_ours(program: Program, grade: Grade) -> None:
    facts = replace(_with(Prolog="/site/prolog"), programs={"/site/prolog": program})
    assert _item(facts, "prolog").grade is grade


def _nodes(**changes: str) -> Mapping[str, NodeView]:
    return {"n1": NODE, "n2": replace(NODE, name="n2", **changes)}  # type: ignore[arg-type]


def test_nodes_without_an_agent_are_named() -> None:
    item = _item(replace(FACTS, nodes=_nodes(extra="")), "agents")
    assert item.grade is Grade.WARN
    assert "1 of 2" in item.text
    assert "n2" in item.text


@pytest.mark.parametrize("extra", ["rack=7", f"rack=7; {EXTRA}"])
def test_others_who_write_extra_are_named(extra: str) -> None:
    item = _item(replace(FACTS, nodes=_nodes(extra=extra)), "extra_field")
    assert item.grade is Grade.WARN
    assert "n2" in item.text


@pytest.mark.parametrize(
    ("comment", "grade"),
    [
        ("", Grade.OK),
        ("slc1[ab;n2.1;3;repairing]", Grade.OK),
        ("slcd[ab@host:3]", Grade.OK),
        ("slc1[ab;n2.1;3;repairing] slcd[ab@host:3]", Grade.OK),
        ("bought 2024 slc1[ab;n2.1;3;repairing]", Grade.WARN),
    ],
)
def test_others_who_write_comment_are_named(comment: str, grade: Grade) -> None:
    assert _item(replace(FACTS, nodes=_nodes(comment=comment)), "comment_field").grade is grade


def test_a_partition_that_is_not_there_fails() -> None:
    item = _item(FACTS, "partitions", replace(POLICY, partitions=("gpu", "gpo")))
    assert item.grade is Grade.FAIL
    assert "gpo" in item.text
    assert "gpu" in item.remedy


def test_nodes_that_could_not_be_read_are_unknown_not_good() -> None:
    assert _item(replace(FACTS, nodes=None), "nodes").grade is Grade.UNKNOWN


def test_lists_of_programs_of_every_release() -> None:
    assert paths({"Prolog": "/a:/b"}, "Prolog") == ("/a", "/b")
    assert paths({"Prolog[0]": "/a", "Prolog[1]": "/b", "PrologFlags": "Alloc"}, "Prolog") == ("/a", "/b")
    assert programs_named({"Prolog": "(null)", "RebootProgram": "/r"}) == ("/r",)


# ---------------------------------------------------------------- gathering


def _script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("stamp", "before", "after", "skew"),
    [
        ("1970-01-01T00:16:40", 1000.2, 1000.4, 0.0),
        ("1970-01-01T00:16:40", 1000.9, 1001.3, 0.0),
        ("1970-01-01T00:16:50", 1000.0, 1000.5, 9.5),
        ("1970-01-01T00:16:40", 1011.0, 1011.5, -10.0),
        ("N/A", 1000.0, 1000.5, None),
    ],
)
def test_the_clock_of_slurmctld_is_in_its_answer(
    stamp: str, before: float, after: float, skew: float | None
) -> None:
    found = doctor.skew_s(f"Configuration data as of {stamp}\nX = y\n", before, after)
    assert found == pytest.approx(skew)


def test_what_is_seen_of_programs(tmp_path: Path) -> None:
    ours = _script(tmp_path / "prolog.sh", "run_dir=/run/slurm-lifecycle")
    caller = _script(tmp_path / "site-prolog", f"exec '{ours}' \"$@\"")
    other = _script(tmp_path / "other", "exit 0")
    dull = _script(tmp_path / "dull", "exit 0", mode=0o644)
    assert doctor._program(str(ours)) == Program(executable=True, ours=True)
    assert doctor._program(str(caller)) == Program(executable=True, ours=True)
    assert doctor._program(str(other)) == Program(executable=True, ours=False)
    assert doctor._program(str(dull)) == Program(executable=False, ours=False)
    assert doctor._program(str(tmp_path / "none")) == Program()
    assert doctor._program(str(tmp_path / "*pro*")) == Program(executable=True, ours=True)


def test_the_store_is_tried(tmp_path: Path) -> None:
    path = tmp_path / "a" / "store.db"
    assert doctor._store_problem(path, lambda: None) == ""
    path.parent.mkdir()
    path.touch()
    assert doctor._store_problem(path, lambda: None) == ""

    def refuse() -> object:
        raise StoreError("store is damaged")

    assert doctor._store_problem(path, refuse) == "store is damaged"


class _Cluster:
    """Answers the two reads that doctor makes, as slurmctld's configuration would be read."""

    def __init__(self, config: Mapping[str, str] | None, nodes: Mapping[str, NodeView] | None) -> None:
        self._config, self._nodes = config, nodes

    def config(self) -> Mapping[str, str]:
        if self._config is None:
            raise TransientError("read configuration", "no answer")
        return self._config

    def nodes(self) -> Mapping[str, NodeView]:
        if self._nodes is None:
            raise TransientError("read nodes", "no answer")
        return self._nodes


def _examine(tmp_path: Path, scontrol: str, cluster: _Cluster) -> dict[str, Precondition]:
    command = _script(tmp_path / "scontrol", scontrol)
    site = tmp_path / "site.toml"
    site.write_text(
        f'[slurm]\nscontrol = "{command}"\ntimeout_s = 1\n[store]\npath = "{tmp_path}/store.db"\n', "utf-8"
    )
    items = doctor.examine(load_config(site), cast(Slurm, cluster), lambda: None)
    return {item.name: item for item in items}


def test_a_whole_examination(tmp_path: Path) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    items = _examine(
        tmp_path,
        f'[ "$2" = config ] && echo "Configuration data as of {now}"; exit 0',
        _Cluster(GOOD_CONFIG, {"n1": NODE}),
    )
    assert items["clock"].grade is Grade.OK
    assert items["federation"].grade is Grade.OK
    assert items["agents"].grade is Grade.OK
    assert items["store"].grade is Grade.OK


def test_a_federation_is_seen(tmp_path: Path) -> None:
    text = "Federation: siblings\nSelf: a:127.0.0.1:1 ID:1"
    items = _examine(tmp_path, f"printf '%s\\n' '{text}'", _Cluster(GOOD_CONFIG, None))
    assert items["federation"].grade is Grade.FAIL
    assert "siblings" in items["federation"].text
    assert items["nodes"].grade is Grade.UNKNOWN


@pytest.mark.parametrize("scontrol", ["exec sleep 30", "exit 1", "head -c 100 /dev/urandom"])
def test_a_client_that_hangs_fails_or_talks_nonsense_is_unknown(tmp_path: Path, scontrol: str) -> None:
    began = time.monotonic()
    items = _examine(tmp_path, scontrol, _Cluster(GOOD_CONFIG, {"n1": NODE}))
    assert items["clock"].grade is Grade.UNKNOWN
    assert time.monotonic() - began < 15


def test_without_slurmctld_nothing_is_judged(tmp_path: Path) -> None:
    with pytest.raises(TransientError):
        _examine(tmp_path, "exit 1", _Cluster(None, None))


def test_admin_level_is_asked_only_where_there_is_accounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(tmp_path / "sacctmgr", "echo Operator")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert doctor._admin_level("ada", {"AccountingStorageType": "accounting_storage/none"}, 5) == ""
    assert (
        doctor._admin_level("ada", {"AccountingStorageType": "accounting_storage/slurmdbd"}, 5) == "Operator"
    )
