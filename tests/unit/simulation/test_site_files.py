"""Site descriptions and policy files: what is shipped is right, and every mistake is one line."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.core.policy import Mode, Policy
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.simulation.lab.policy_files import DEFAULT_POLICIES, POLICIES, load_policies, load_policy
from slurm_lifecycle.simulation.lab.run import node_specs
from slurm_lifecycle.simulation.lab.site_files import SCENARIOS, load_site, load_site_file, shipped
from slurm_lifecycle.simulation.lab.site_schema import (
    EventTable,
    FailuresTable,
    JobTable,
    PeopleTable,
    RepairTable,
    SiteDescription,
    SlurmTable,
)
from slurm_lifecycle.simulation.machines.faults import INTERRUPTIONS, KINDS
from tests.architecture.source import ROOT

EXAMPLES = ROOT / "etc"
SMALL = """
nodes = 32
nodes_per_domain = 8
days = 2
[[jobs]]
name = "train"
count = 1
nodes = 16
"""


def written(folder: Path, text: str, name: str = "site.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# ---------------------------------------------------------------- what is shipped


def test_the_shipped_scenarios_are_those_that_are_promised() -> None:
    assert set(shipped(SCENARIOS)) == {"llama3-54d", "mixed-512", "driver-rollout"}
    llama = load_site("llama3-54d")
    assert (llama.nodes, llama.gpus_per_node, llama.days) == (2048, 8, 54)
    assert [(one.count, one.nodes_max) for one in llama.jobs] == [(1, 2048)]
    expected = llama.failures.per_1000_node_days / 1000 * llama.nodes * llama.days
    assert expected == pytest.approx(INTERRUPTIONS)
    assert load_site("mixed-512").nodes == 512
    (rollout,) = load_site("driver-rollout").events
    assert (rollout.kind, rollout.share, rollout.within_s) == ("driver_rollout", 0.2, 3600)


def test_the_shipped_policies_are_those_that_are_promised() -> None:
    assert set(shipped(POLICIES)) == set(DEFAULT_POLICIES)
    manual, reboot, full, standby = load_policies(DEFAULT_POLICIES)
    assert manual.operator
    assert manual.policy.mode is Mode.OBSERVE
    # People are as fast as the site says, whatever is tried.
    assert {one.response_s for one in (manual, reboot, full, standby)} == {None}
    assert {rule.rung for path in reboot.policy.paths.values() for rule in path} == {
        Rung.VERIFY,
        Rung.REBOOT,
        Rung.PERSON,
    }
    assert full.policy.paths == Policy().paths
    assert Rung.REIMAGE in full.policy.effects
    assert standby.policy == full.policy
    assert standby.standby_nodes(load_site("llama3-54d")) == 41


def test_rungs_without_an_effect_in_this_release_are_named() -> None:
    assert load_policy("full").passed_over == ("diagnose", "gpu_reset", "power")
    assert load_policy("reboot-only").passed_over == ()


# ---------------------------------------------------------------- one's own


def test_a_site_of_ones_own(tmp_path: Path) -> None:
    text = (
        "nodes = 100\ngpus_per_node = 4\nnodes_per_domain = 10\npartitions = { batch = 0.75, debug = 0.25 }\n"
        '[slurm]\nrelease = "22.05"\n[failures]\nscale = 2.0\n[failures.causes]\ngpu_off_bus = 5.0\n'
        '"HBM" = 1.5\n[[events]]\nkind = "power"\nat = "6h"\ndomain = "rack010"\nlasts = "30min"\n'
        '[[jobs]]\nname = "a"\nper_day = 48.0\nnodes = 5\nrun_time = "2h"\npartition = "debug"\n'
        '[[jobs]]\nname = "b"\nshare = 0.5\nnodes_min = 2\nnodes_max = 10\nrun_time = "1h"\n'
    )
    site = load_site_file(written(tmp_path, text))
    assert site.partition_sizes() == {"batch": 75, "debug": 25}
    assert site.failures.by_kind["gpu_off_bus"] == 10.0
    hbm = sum(site.failures.by_kind[key] for key, kind in KINDS.items() if kind.cause == "HBM")
    assert hbm == pytest.approx(3.0)
    assert site.events[0].lasts_s == 1800
    first, second = site.jobs
    assert (first.partition, first.every_s) == ("debug", 1800)
    # Half of 100 nodes, by jobs of 10 nodes for an hour: five an hour.
    assert second.every_s == pytest.approx(720)
    assert second.partition == "batch"
    specs = node_specs(site, 5)
    assert len(specs) == 105
    assert {one.domain for one in specs[100:]} == {"rack011"}
    assert [one.partitions for one in specs[100:]].count(("batch",)) == 4


def test_rates_of_ones_own_history_take_the_place_of_the_published_ones(tmp_path: Path) -> None:
    site = load_site_file(written(tmp_path, SMALL), {"gpu_hang": 2.0})
    assert site.failures.by_kind == {"gpu_hang": 2.0}


def test_the_example_names_every_key_and_tells_the_defaults(tmp_path: Path) -> None:
    example = EXAMPLES / "simulate-site.toml"
    text = example.read_text(encoding="utf-8")
    tables = (SiteDescription, SlurmTable, FailuresTable, RepairTable, PeopleTable, EventTable, JobTable)
    keys = {key for table in tables for key in table.model_fields}
    assert {key for key in keys if not re.search(rf"\b{key}\b", text)} == set()
    site, plain = load_site_file(example), load_site_file(written(tmp_path, "nodes = 256"))
    assert [one.name for one in site.jobs] == ["pretrain", "small"]
    assert replace(site, name=plain.name, summary=plain.summary, events=(), jobs=()) == plain


FOUR = "nodes = 4\n"
POWER = FOUR + '[[events]]\nkind = "power"\nat = "1h"\n'
ROLLOUT = FOUR + '[[events]]\nkind = "driver_rollout"\nat = "1h"\n'
JOB = FOUR + '[[jobs]]\nname = "a"\n'
ONE = JOB + "count = 1\n"
MISTAKES = {
    "nodes = 0": "nodes: ",
    "nodes = 30000": "nodes: ",
    'nodes = "many"': "nodes: ",
    FOUR + "nodez = 1": "nodez: unknown key; did you mean 'nodes'?",
    "days = 3": "nodes: missing; as in nodes = 512",
    FOUR + "days = 500": "days: ",
    FOUR + "partitions = { a = 0.5 }": "partitions: their shares add up to 0.5",
    "nodes = 1\npartitions = { a = 0.5, b = 0.5 }": "partitions: more of them than nodes",
    FOUR + '[slurm]\nrelease = "23.02"': "slurm.release: unknown '23.02'",
    FOUR + "[slurm]\nslurmd_timeout = 300": "slurm.slurmd_timeout: a duration needs a unit",
    FOUR + '[repair]\nrma_least = "20d"': "repair.rma_least: 20 d is above rma_most = 14 d",
    FOUR + "[failures.causes]\ngpu = 1.0": "failures.causes.gpu: unknown cause",
    FOUR + "[failures]\nscale = -1.0": "failures.scale: ",
    FOUR + '[[events]]\nkind = "flood"\nat = "1h"': "events.0.kind: ",
    POWER + 'domain = "rack002"': "events.0.domain: unknown 'rack002'",
    ROLLOUT + 'domain = "rack001"': "events.0.domain: ",
    JOB + "nodes = 2": "jobs.0: give exactly one of count, per_day and share",
    "days = 2\n"
    + POWER.replace("1h", "2d")
    + 'domain = "rack001"': "events.0.at: 2 d is not within days = 2",
    POWER + 'domain = "rack001"\nwithin = "2h"': "events.0.within: not for power",
    ROLLOUT + 'lasts = "2h"': "events.0.lasts: not for driver_rollout",
    FOUR + '[slurm]\ninterval = "1d"': "slurm.interval: ",
    FOUR + '[slurm]\ninterval = "0.0001s"': "slurm.interval: ",
    ONE: "jobs.0: nodes is missing",
    ONE + "nodes_min = 2\nnodes_max = 5": "jobs.0.nodes_max: 5 nodes, and partition batch has 4",
    ONE + 'nodes = 2\ntime_limit = "1min"': "jobs.0.time_limit: shorter than a minute and restart",
    JOB + 'count = 9000\nnodes = 1\nrun_time = "1s"\nrestart = "1s"': "jobs would be started",
    "nodes = " + "9" * 5000: "not valid TOML: ",
    "nodes = 0x" + "f" * 9000: "nodes: should be less than or equal to 20000, not what stands there",
    "nodes = [0x" + "f" * 9000 + "]": "nodes: should be a valid integer, not what stands there",
    "nodes = " + "[" * 5000 + "]" * 5000: "not valid TOML: brackets nested too deep",
    "nodes" + ".a" * 5000 + " = 1": "nodes: should be a valid integer",
    'nodes = "' + "x" * 5000 + '"': "xxx...; as in nodes = 512",
    FOUR + "jobs = [" + "{}," * 101 + "]": "at most 100 items after validation, not 101",
    ONE + "nodes = 5": "jobs.0.nodes: 5 nodes, and partition batch has 4",
    ONE + "nodes_min = 3\nnodes_max = 2": "nodes_min = 3 is above nodes_max",
    JOB + "per_day = 1.0\nnodes = 2": "jobs.0: run_time is missing",
    ONE + 'nodes = 2\nrun_time = "2h"\ntime_limit = "1h"': "jobs.0.time_limit: ",
    ONE + 'nodes = 2\npartition = "x"': "jobs.0.partition: unknown 'x'",
    FOUR + '[[jobs]]\nname = "a b"\ncount = 1\nnodes = 2': "jobs.0.name: ",
    ONE + 'nodes = 1\n[[jobs]]\nname = "a"\ncount = 1\nnodes = 1': "jobs.1.name: 'a' is there twice",
    FOUR + "[[jobs]]\nname = 'a'\nper_day = 9000.0\nnodes = 1\nrun_time = '1h'\n[[jobs]]\nname = 'b'\n"
    "per_day = 9000.0\nnodes = 1\nrun_time = '1h'": "jobs: 504000 jobs would be started",
    "nodes = [": "not valid TOML",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_a_site_is_one_line_that_names_file_and_field(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_site_file(path)
    said = str(raised.value)
    assert said.startswith(f"{path}: ")
    assert MISTAKES[text] in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[simulate]\nstandby_percent = 90.0", "simulate.standby_percent: "),
        ('[simulate]\nmode = "dry"', "simulate.mode: "),
        ('[simulate]\nrungs = ["rebot"]', "simulate.rungs: unknown 'rebot'; did you mean 'reboot'?"),
        ("[simulate]\noperator = true", "simulate.operator: "),
        ("[budgets]\nmax_out = 1", "budgets: unknown key; did you mean 'budget'?"),
        ("[breaker]\nleast = 50\nmost = 10", "breaker.least: "),
        ('[paths]\nreboot = [{ rung = "pray", deadline = "1h" }]', "paths.reboot: unknown rung 'pray'"),
    ],
)
def test_a_mistake_in_a_policy_is_one_line_too(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text, "mine.toml")
    with pytest.raises(ConfigError) as raised:
        load_policy(str(path))
    assert str(raised.value).startswith(f"{path}: {told}")


def test_a_production_policy_file_is_a_policy_to_try() -> None:
    policy = load_policy(str(EXAMPLES / "policy.toml"))
    assert policy.policy.mode is Mode.ACT
    assert policy.policy.paths[FaultClass.REBOOT] == Policy().paths[FaultClass.REBOOT]
    assert policy.standby_percent == 0.0


@pytest.mark.parametrize("word", ["nothing", "manua"])
def test_names_that_are_not_there(word: str) -> None:
    with pytest.raises(ConfigError, match="no such name"):
        load_site(word)
    with pytest.raises(ConfigError, match="no such name"):
        load_policy(word)


def test_the_same_policy_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'full' is there twice"):
        load_policies(["full", "manual", "full"])
