"""Doctor on BMCs: what is judged of machines that are switched off and on, and how it is gathered."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_lifecycle.core.machine_preconditions import judge_machines
from slurm_lifecycle.core.model import NodeView
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.core.site_facts import BmcFacts, Grade, Precondition, SiteFacts
from slurm_lifecycle.service import doctor
from slurm_lifecycle.service.config import Config, load_config
from slurm_lifecycle.service.config_check import Remark, Weight, check_config

BOTH = frozenset({"n1", "n2"})
NODES = {
    name: NodeView(name, frozenset({"IDLE"}), partitions=(partition,), gpus=8)
    for name, partition in (("n1", "gpu"), ("n2", "gpu"), ("login", "cpu"))
}
SLURM = {"SuspendProgram": "(null)"}
SAVING = {"SuspendProgram": "/usr/sbin/poweroff-nodes"}
FACTS = SiteFacts(config=SLURM, nodes=NODES, bmcs=BmcFacts(BOTH))
POLICY = Policy(partitions=("gpu",), rungs=frozenset({"drain", "return", "power"}), bmc=BOTH)


def _item(facts: SiteFacts, name: str, policy: Policy = POLICY) -> Precondition:
    found = [item for item in judge_machines(facts, policy) if item.name == name]
    assert len(found) == 1, name
    return found[0]


def test_a_site_without_bmcs_hears_nothing_of_them() -> None:
    assert judge_machines(replace(FACTS, bmcs=None), POLICY) == ()


def test_a_good_site_is_good_in_every_item() -> None:
    items = judge_machines(FACTS, POLICY)
    assert [item.name for item in items] == ["bmc_credentials", "bmc_serials", "bmc_nodes", "power_button"]
    assert {item.grade for item in items} == {Grade.OK}


def test_credentials_that_cannot_be_read_fail_only_where_power_is_switched() -> None:
    facts = replace(FACTS, bmcs=BmcFacts(BOTH, secret_problems=("/x: chmod 600 /x", "/y: missing")))
    item = _item(facts, "bmc_credentials")
    assert (item.grade, item.text) == (Grade.FAIL, "/x: chmod 600 /x (and 1 more)")
    without = replace(POLICY, rungs=frozenset({"drain"}))
    assert _item(facts, "bmc_credentials", without).grade is Grade.WARN
    by_network = replace(POLICY, rungs=frozenset({"reimage"}), reimage_by_pxe=True)
    assert _item(facts, "bmc_credentials", by_network).grade is Grade.FAIL


def test_machines_without_a_record_are_named() -> None:
    item = _item(FACTS, "bmc_serials", replace(POLICY, bmc=frozenset({"n1"})))
    assert item.grade is Grade.WARN
    assert "1 of 2 machines" in item.text
    assert item.text.endswith("(n2)")
    assert item.remedy == "slurm-lifecycle bmc record --all"


def test_nodes_of_ours_without_a_bmc_are_named_where_power_is_a_rung() -> None:
    facts = replace(FACTS, bmcs=BmcFacts(frozenset({"n1"})))
    item = _item(facts, "bmc_nodes")
    assert item.grade is Grade.WARN
    assert "1 of 2 nodes have no BMC" in item.text
    assert _item(facts, "bmc_nodes", replace(POLICY, rungs=frozenset({"drain"}))).grade is Grade.OK
    assert "2 of 3 nodes" in _item(facts, "bmc_nodes", replace(POLICY, partitions=("*",))).text


def test_a_bmc_of_no_node_is_named() -> None:
    item = _item(replace(FACTS, bmcs=BmcFacts(BOTH | {"n3"})), "bmc_nodes")
    assert item.grade is Grade.WARN
    assert "(n3)" in item.text
    assert _item(replace(FACTS, nodes=None), "bmc_nodes").grade is Grade.UNKNOWN


@pytest.mark.parametrize(
    ("suspendable", "grade"),
    [(frozenset({"n2"}), Grade.WARN), (frozenset[str](), Grade.OK), (None, Grade.UNKNOWN)],
)
def test_two_masters_of_one_power_button(suspendable: frozenset[str] | None, grade: Grade) -> None:
    facts = replace(FACTS, config=SAVING, bmcs=BmcFacts(BOTH, suspendable=suspendable))
    item = _item(facts, "power_button")
    assert item.grade is grade
    if grade is Grade.WARN:
        assert "(n2)" in item.text
        assert "SuspendExcNodes=" in item.remedy
    assert _item(replace(facts, config=SLURM), "power_button").grade is Grade.OK


# ---------------------------------------------------------------- gathering


class Cluster:
    """As much of Slurm as `examine` asks."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    def config(self) -> Mapping[str, str]:
        return self.settings

    def nodes(self) -> Mapping[str, NodeView]:
        return NODES


def site(folder: Path, *, mode: int = 0o600, trust: str = "insecure = true", serials: str = "") -> Config:
    secret = folder / "secret.toml"
    secret.write_text('username = "a"\npassword = "hunter2"\n')
    secret.chmod(mode)
    (folder / "bmc.toml").write_text(
        f'[[group]]\nnodes = "n[1-2]"\naddress = "https://{{node}}-bmc"\nprofile = "generic"\n{trust}\n'
        f'credentials_file = "{secret}"\n'
    )
    (folder / "serials.toml").write_text(f"[serial]\n{serials}")
    (folder / "site.toml").write_text(
        f'rungs = ["power"]\npartitions = ["gpu"]\n[store]\npath = "{folder}/store.db"\n'
        f'[bmc]\nfile = "{folder}/bmc.toml"\nserials = "{folder}/serials.toml"\n'
        f'[slurm]\nscontrol = "/nonexistent"\n[rma]\nfolder = "{folder}"\n'
    )
    return load_config(folder / "site.toml")


def examined(config: Config, settings: Mapping[str, str]) -> dict[str, Precondition]:
    items = doctor.examine(config, Cluster(settings), lambda: None)  # type: ignore[arg-type]
    return {item.name: item for item in items}


def test_credentials_are_tried_once_a_source_and_never_shown(tmp_path: Path) -> None:
    assert examined(site(tmp_path), SLURM)["bmc_credentials"].grade is Grade.OK
    item = examined(site(tmp_path, mode=0o644), SLURM)["bmc_credentials"]
    assert item.grade is Grade.FAIL
    assert f"chmod 600 {tmp_path}/secret.toml" in item.text
    assert "more" not in item.text
    assert "hunter2" not in item.text


@pytest.mark.parametrize(
    ("settings", "grade", "says"),
    [
        ({}, Grade.WARN, "2 of the machines"),
        ({"SuspendExcNodes": "n[1-2]"}, Grade.OK, ""),
        ({"SuspendExcNodes": "login,n[1,2]"}, Grade.OK, ""),
        ({"SuspendExcNodes": "n1"}, Grade.WARN, "(n2)"),
        ({"SuspendExcNodes": "n1,n[1-2]:1"}, Grade.WARN, "(n2)"),
        ({"SuspendExcNodes": "n[1-"}, Grade.UNKNOWN, ""),
        ({"SuspendExcParts": "gpu"}, Grade.OK, ""),
        ({"SuspendExcParts": "cpu"}, Grade.WARN, "2 of the machines"),
    ],
)
def test_what_power_saving_leaves_alone(
    tmp_path: Path, settings: Mapping[str, str], grade: Grade, says: str
) -> None:
    item = examined(site(tmp_path), {**SAVING, **settings})["power_button"]
    assert item.grade is grade
    assert says in item.text


# ---------------------------------------------------------------- config check


def remarks(config: Config) -> dict[str, Remark]:
    return {one.key: one for one in check_config(config, {"n1": NODES["n1"]})}


def test_config_check_speaks_of_what_is_not_checked_not_recorded_not_there(tmp_path: Path) -> None:
    found = remarks(site(tmp_path, serials='n1 = "S1"\n'))
    assert "n1, n2" in found["insecure"].text
    assert "none on record of n2" in found["bmc.serials"].text
    assert "Slurm has no node n2" in found["bmc.file"].text
    missing = remarks(site(tmp_path, trust='ca_file = "/none.pem"'))["ca_file"]
    assert missing.weight is Weight.PROBLEM


def test_config_check_finds_a_serial_that_tells_no_machine(tmp_path: Path) -> None:
    found = remarks(site(tmp_path, serials='n1 = "Default string"\nn2 = "S2"\n'))["bmc.serials"]
    assert found.weight is Weight.PROBLEM
    assert "n1" in found.text
