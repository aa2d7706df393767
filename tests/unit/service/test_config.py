"""The configuration: the shipped files, defaults, and one line for every mistake."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.core.policy import Budget, Cap, Mode, Policy, RungRule
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service.config import RUNG_WORDS, Config, load_config
from slurm_lifecycle.service.config_schema import PolicyFileTables, SiteFile, checked, parse_duration_s

ETC = Path(__file__).resolve().parents[3] / "etc"


def _load(folder: Path, site: str = "", policy: str | None = None) -> Config:
    path = folder / "site.toml"
    path.write_text(site, encoding="utf-8")
    if policy is not None:
        (folder / "policy.toml").write_text(policy, encoding="utf-8")
    return load_config(path)


def test_an_empty_file_is_a_safe_configuration(tmp_path: Path) -> None:
    config = _load(tmp_path)
    assert config.policy.mode is Mode.OBSERVE
    assert config.policy.partitions == ()
    assert config.policy.rungs == frozenset()
    assert Rung.REIMAGE not in config.policy.effects
    assert config.policy_path is None
    assert config.store_path == Path("/var/lib/slurm-lifecycle/store.db")


def test_the_shipped_policy_says_what_the_code_says() -> None:
    shipped = load_config(ETC / "slurm-lifecycle.toml")
    assert shipped.policy_path == ETC / "policy.toml"
    defaults = Policy()
    for name in defaults.__dataclass_fields__:
        if name != "effects":
            assert getattr(shipped.policy, name) == getattr(defaults, name), name


def test_the_commented_examples_of_the_shipped_files_are_valid(tmp_path: Path) -> None:
    for name in ("slurm-lifecycle.toml", "policy.toml"):
        lines = (ETC / name).read_text(encoding="utf-8").splitlines()
        # A commented setting or table; prose never has this shape.
        live = [re.sub(r"^# (?=\[[a-z0-9_.]+\]|[a-z0-9_]+ = )", "", line) for line in lines]
        (tmp_path / name).write_text("\n".join(live).replace("/etc/slurm-lifecycle", str(tmp_path)), "utf-8")
    bmcs = (ETC / "bmc.toml").read_text(encoding="utf-8").replace("/etc/slurm-lifecycle", str(tmp_path))
    (tmp_path / "bmc.toml").write_text(bmcs, encoding="utf-8")
    config = load_config(tmp_path / "slurm-lifecycle.toml")
    assert config.bmc is not None
    assert config.bmc.entries["gpu016"].profile == "dgx_h100"
    assert config.reimage.start == ("/usr/local/sbin/reimage", "start")
    assert Rung.REIMAGE in config.policy.effects
    assert config.policy.domains["gpu017"] == "rack2"
    assert config.policy.partition_budgets["gpu"] == Budget(None, 2)
    assert config.node_command[-2:] == ("{node}", "--")


def test_site_settings_reach_the_policy(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        'mode = "act"\npartitions = ["gpu"]\nrungs = ["drain", "reimage"]\n'
        '[reimage]\nstart = ["/r", "start"]\npoll = ["/r", "poll"]\nimage = "u24"\n'
        '[domains]\nr1 = "n[1-2],m7"\n',
    )
    assert config.policy.mode is Mode.ACT
    assert config.policy.partitions == ("gpu",)
    assert config.policy.rungs == {"drain", "reimage"}
    assert config.policy.image == "u24"
    assert config.policy.domains == {"n1": "r1", "n2": "r1", "m7": "r1"}


def test_policy_settings_reach_the_policy(tmp_path: Path) -> None:
    policy = _load(
        tmp_path,
        policy='[budget]\nmax_out = 8\n[budget.domain.r1]\nmax_working = 1\n[deadlines]\nreturn = "5min"\n'
        '[paths]\nsoftware = [{ rung = "reimage", attempts = 3, deadline = "2h" }]\n'
        '[caps]\nreboot = [{ count = 1, within = "1d" }]\n[breaker]\nleast = 3\n[adopt]\ntools = ["NHC:"]\n',
    ).policy
    assert policy.fleet == Budget(8, None)
    assert policy.domain_budgets == {"r1": Budget(None, 1)}
    assert policy.return_deadline_s == 300
    assert policy.paths[FaultClass.SOFTWARE] == (RungRule(Rung.REIMAGE, 3, 7200.0),)
    assert policy.paths[FaultClass.REBOOT] == Policy().paths[FaultClass.REBOOT]
    assert policy.caps[Rung.REBOOT] == (Cap(1, 86400.0),)
    assert policy.breaker.least == 3
    assert policy.breaker.most == Policy().breaker.most
    assert policy.adopt_tools == ("NHC:",)


SITE_MISTAKES = [
    ('mode = "Act"', ["mode", "'observe' or 'act'", 'mode = "observe"']),
    ('partitons = ["a"]', ["partitons", "unknown key", "'partitions'"]),
    ('partitions = "gpu"', ["partitions", "list", 'partitions = ["gpu"]']),
    ('rungs = ["rebot"]', ["rungs", "'rebot'", "'reboot'"]),
    ('rungs = ["reimage"]', ["rungs", "[reimage] start and poll"]),
    ('[reimage]\nstart = ["x"]', ["reimage.poll", "missing"]),
    ('[reimage]\nstart = [""]\npoll = ["x"]', ["reimage.start.0", "at least 1"]),
    ("[daemon]\ninterval = 3", ["daemon.interval", "'interval_s'"]),
    ("[daemon]\ninterval_s = 0", ["daemon.interval_s", "0.2", "interval_s = 10"]),
    ('[daemon]\ninterval_s = "10"', ["daemon.interval_s", "'10'", "interval_s = 10"]),
    ("[daemon]\nmetrics_port = 70000", ["daemon.metrics_port", "65535"]),
    ('[store]\npath = "x"', ["store.path", "absolute", "/"]),
    ('[policy]\nfile = "/no/such/policy.toml"', ["/no/such/policy.toml", "no such file"]),
    ('[node_command]\nargv = ["ssh"]', ["node_command.argv", "{node}"]),
    ('[domains]\nr1 = "n[1-"', ["domains.r1", "no hostlist"]),
    ('[domains]\nr1 = ""', ["domains.r1"]),
    ('[domains]\nr1 = "n[1-99999999]"', ["domains.r1", "too large"]),
    ('[domains]\nr1 = "n[1-9999]m[1-9999]"', ["domains.r1", "too large"]),
    ('[domains]\nr1 = "n[1-3]"\nr2 = "n3"', ["domains.r2", "n3", "'r1'"]),
    ("mode = ", ["not valid TOML"]),
    ("\udcff", ["not valid TOML"]),
]

POLICY_MISTAKES = [
    ("[deadlines]\nreturn = 5", ["deadlines.return", "needs a unit", '"5min"']),
    ('[deadlines]\nreturn = "5"', ["deadlines.return", "not a duration", '"30min"']),
    ('[deadlines]\nreturn = "0s"', ["deadlines.return", "greater than 0"]),
    ('[deadlines]\nreturns = "5min"', ["deadlines.returns", "'return'"]),
    ("[caps]\nreboot = [{ count = 2 }]", ["caps.reboot.0.within", "missing", 'within = "24h"']),
    ('[caps]\nrebot = [{ count = 2, within = "1d" }]', ["caps.rebot", "'reboot'"]),
    ('[paths]\nsoft = [{ rung = "reboot", deadline = "3min" }]', ["paths.soft", "'software'"]),
    ('[paths]\nsoftware = [{ rung = "rebot", deadline = "3min" }]', ["paths.software", "'reboot'"]),
    ("[paths]\nsoftware = []", ["paths.software", "empty"]),
    ("[budget]\nmax_working = 0", ["budget.max_working", "1"]),
    ("[budget.partition.gpu]\nmax_workin = 2", ["budget.partition.gpu.max_workin", "'max_working'"]),
    ("[breaker]\nleast = 50", ["breaker.least", "most"]),
    ("[adopt]\nslurm = 1", ["adopt.slurm", "boolean", "slurm = true"]),
]


def _line_of(error: ConfigError) -> str:
    text = str(error)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(("site", "wanted"), SITE_MISTAKES, ids=[site[:30] for site, _ in SITE_MISTAKES])
def test_a_mistake_is_one_line_with_file_key_and_remedy(tmp_path: Path, site: str, wanted: list[str]) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(site.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    line = _line_of(caught.value)
    assert all(word in line for word in wanted), line
    assert "/no/such" in line or str(path) in line


@pytest.mark.parametrize(
    ("policy", "wanted"), POLICY_MISTAKES, ids=[text[:30] for text, _ in POLICY_MISTAKES]
)
def test_a_mistake_in_the_policy_names_its_file(tmp_path: Path, policy: str, wanted: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, policy=policy)
    line = _line_of(caught.value)
    assert all(word in line for word in [*wanted, str(tmp_path / "policy.toml")]), line


def test_the_first_of_several_mistakes_is_told_and_the_rest_counted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mode: .*\(and 2 more\)"):
        _load(tmp_path, "mode = 1\npartitions = 2\nrungs = 3")


def test_a_missing_file_says_where_to_take_one_from(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file; copy etc/slurm-lifecycle.toml"):
        load_config(tmp_path / "none.toml")


@pytest.mark.parametrize("word", ["drain", "return", "reboot", "rma", "reseat", "verify"])
def test_every_rung_may_be_listed(tmp_path: Path, word: str) -> None:
    assert _load(tmp_path, f'rungs = ["{word}"]').policy.rungs == {word}
    assert word in RUNG_WORDS


@given(st.integers(1, 10**6), st.sampled_from([("s", 1), ("min", 60), ("h", 3600), ("d", 86400)]))
def test_durations_are_exact(number: int, unit: tuple[str, int]) -> None:
    assert parse_duration_s(f"{number}{unit[0]}") == number * unit[1]
    assert parse_duration_s(f"{number} {unit[0]}") == number * unit[1]


@given(st.one_of(st.text(max_size=20), st.integers(), st.floats(allow_nan=True), st.none(), st.booleans()))
def test_a_duration_is_a_number_or_says_what_to_write(value: object) -> None:
    try:
        seconds = parse_duration_s(value)
    except ValueError as error:
        told = str(error)
    else:
        assert seconds >= 0
        return
    assert '"' in told


_keys = st.sampled_from(
    [
        *SiteFile.model_fields,
        *PolicyFileTables.model_fields,
        "path",
        "max_out",
        "rung",
        "reboot",
        "gpu",
        "x y",
    ]
)
_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=3)),
    max_leaves=8,
)


@pytest.mark.parametrize("model", [SiteFile, PolicyFileTables])
@given(data=st.dictionaries(_keys, _values, max_size=4))
def test_whatever_stands_in_a_file_is_a_table_or_one_line(model: type[Any], data: dict[str, Any]) -> None:
    try:
        assert isinstance(checked(model, data, Path("f")), model)
    except ConfigError as error:
        _line_of(error)
