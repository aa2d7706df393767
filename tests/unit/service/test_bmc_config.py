"""Which BMC belongs to which node: the files, their mistakes in one line, their meaning for the policy."""

import os
import textwrap
from pathlib import Path

import pytest

from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.redfish.profiles import PROFILES
from slurm_lifecycle.service.bmc_config import PROFILE_NAMES
from slurm_lifecycle.service.bootstrap import make_bmc_pool
from slurm_lifecycle.service.config import Config, load_config
from slurm_lifecycle.service.credentials import from_command, from_environment, from_file

GROUP = """
[[group]]
nodes = "n[1-3]"
address = "https://127.0.0.1:{node}"
profile = "generic"
insecure = true
credentials_env = "SLC_TEST_BMC"
"""


def load(folder: Path, bmc: str = GROUP, serials: str = "", site: str = "", policy: str = "") -> Config:
    (folder / "bmc.toml").write_text(textwrap.dedent(bmc), encoding="utf-8")
    if serials:
        (folder / "serials.toml").write_text(serials, encoding="utf-8")
    if policy:
        (folder / "policy.toml").write_text(policy, encoding="utf-8")
    text = f'{site}\n[bmc]\nfile = "{folder}/bmc.toml"\nserials = "{folder}/serials.toml"\n'
    (folder / "site.toml").write_text(text, encoding="utf-8")
    return load_config(folder / "site.toml")


def test_only_machines_with_a_serial_on_record_may_be_switched_off(tmp_path: Path) -> None:
    config = load(tmp_path, serials='[serial]\nn1 = "S1"\nn3 = "S3"\nother = "S9"\n')
    assert config.bmc is not None
    assert sorted(config.bmc.entries) == ["n1", "n2", "n3"]
    assert config.bmc.entries["n2"].address == "https://127.0.0.1:n2"
    assert config.policy.bmc == {"n1", "n3"}
    assert Rung.POWER in config.policy.effects


def test_a_later_group_wins(tmp_path: Path) -> None:
    config = load(tmp_path, GROUP + GROUP.replace("n[1-3]", "n2").replace("{node}", "special"))
    assert config.bmc is not None
    assert config.bmc.entries["n2"].address == "https://127.0.0.1:special"


@pytest.mark.parametrize(
    ("wrong", "right", "says"),
    [
        ('profile = "generic"', 'profile = "dgx"', "unknown 'dgx'"),
        ("https://", "http://", "is no https address"),
        ("insecure = true", "", "name one of ca_file, fingerprint, or insecure"),
        ("insecure = true", 'insecure = true\nca_file = "/x"', "name one of ca_file"),
        ("insecure = true", 'fingerprint = "xyz"', "fingerprint"),
        ('credentials_env = "SLC_TEST_BMC"', "", "a password never stands in this file"),
        ('credentials_env = "SLC_TEST_BMC"', 'password = "hunter2"', "a password never stands in this file"),
        ('credentials_env = "SLC_TEST_BMC"', "password = 7", "a password never stands in this file"),
        ("127.0.0.1", "admin:hunter2@127.0.0.1", "a password never stands in this file"),
        ("{node}", "{nod}", "another placeholder than {node} and {number}"),
        ("{node}", "443/redfish", "is not a host and a port"),
        ("127.0.0.1:{node}", "", "is not a host and a port"),
        (
            'n[1-3]"\naddress = "https://127.0.0.1:{node}',
            'n"\naddress = "https://{number}',
            "n has no number",
        ),
        ("n[1-3]", "n[1-", "is no hostlist"),
        ("n[1-3]", "n[1-9999999]", "is too large"),
        ("{node}", "one", "have the same https://127.0.0.1:one"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_write(
    tmp_path: Path, wrong: str, right: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GROUP.replace(wrong, right))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "address"),
    [
        ("{node}-bmc:8443", "gpu017-bmc:8443"),
        ("10.0.0.{number}/", "10.0.0.17"),
        ("[fd00::{number}]", "[fd00::17]"),
    ],
)
def test_addresses_are_made_from_the_nodes_name(tmp_path: Path, template: str, address: str) -> None:
    group = GROUP.replace("127.0.0.1:{node}", template).replace("n[1-3]", "gpu017")
    config = load(tmp_path, group)
    assert config.bmc is not None
    assert config.bmc.entries["gpu017"].address == f"https://{address}"


@pytest.mark.parametrize(
    ("site", "rung"),
    [('rungs = ["power"]', "power"), ('rungs = ["reimage"]\n[reimage]\nmethod = "pxe"', "reimage")],
)
def test_a_power_cycle_leaves_time_for_the_boot_that_proves_it(tmp_path: Path, site: str, rung: str) -> None:
    """Off and on take at most 8 min 15 s by default."""
    path = f'[paths]\nsoftware = [{{ rung = "{rung}", deadline = "DEADLINE" }}]\n'
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, site=site, policy=path.replace("DEADLINE", "16min"))
    assert f"paths.software: {rung}: deadline of 960 s is too short" in str(caught.value)
    assert 'write "17min" or more' in str(caught.value)
    load(tmp_path, site=site, policy=path.replace("DEADLINE", "17min"))
    load(tmp_path, site="", policy=path.replace("DEADLINE", "1min"))


def test_two_nodes_with_one_serial_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"serials\.toml: n1 and n2 have the same serial S1"):
        load(tmp_path, serials='[serial]\nn1 = "S1"\nn2 = "S1"\n')


@pytest.mark.parametrize("site", ['rungs = ["power"]', '[reimage]\nmethod = "pxe"'])
def test_what_needs_bmcs_is_refused_without_them(tmp_path: Path, site: str) -> None:
    (tmp_path / "site.toml").write_text(site, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"set \[bmc\] file"):
        load_config(tmp_path / "site.toml")


def test_times_and_codes_reach_the_policy(tmp_path: Path) -> None:
    text = '[machine]\ngraceful_off = "30s"\n[power]\nat_once = 2\nac_cycle = ["GPU_LOST"]\n'
    policy = load(tmp_path, policy=text).policy
    assert policy.machine.graceful_off_s == 30.0
    assert policy.machine.force_off_s == 120.0
    assert policy.power_at_once == 2
    assert policy.ac_cycle_codes == {"GPU_LOST"}
    with pytest.raises(ConfigError, match=r"power.ac_cycle: unknown code"):
        load(tmp_path, policy='[power]\nac_cycle = ["GPU_LOSS"]\n')


def test_profiles_are_those_of_the_client() -> None:
    assert set(PROFILE_NAMES) == set(PROFILES)


def test_the_pool_is_made_from_it_and_asks_for_a_secret_only_when_it_needs_one(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert config.bmc is not None
    pool = make_bmc_pool(config.bmc)
    reading = pool.read(["n1"], 20.0)["n1"]
    assert "SLC_TEST_BMC_USERNAME" in reading.detail
    pool.close()


# ---------------------------------------------------------------- credentials


def private(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "secret.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_a_private_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = private(tmp_path, 'username = "admin"\npassword = "one"\n')
    read = from_file(path)
    assert read() == ("admin", "one")
    private(tmp_path, 'username = "admin"\npassword = "two"\n')
    assert read() == ("admin", "two")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match="chmod 600"):
        from_file(private(tmp_path, 'username = "a"\npassword = "b"\n', mode))()


@pytest.mark.parametrize(
    "text",
    ["password = hunter2", 'username = "a"', 'username = 7\npassword = "hunter2"', "\0", 'username = ""'],
)
def test_a_file_with_a_mistake_never_shows_what_it_holds(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_file(private(tmp_path, text))()
    assert "hunter2" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_pipe_or_nothing_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("pipe", "none"):
        with pytest.raises(ConfigError):
            from_file(tmp_path / name)()


def test_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLC_TEST_BMC_USERNAME", "admin")
    with pytest.raises(ConfigError, match="SLC_TEST_BMC_PASSWORD"):
        from_environment("SLC_TEST_BMC")()
    monkeypatch.setenv("SLC_TEST_BMC_PASSWORD", "secret")
    assert from_environment("SLC_TEST_BMC")() == ("admin", "secret")


def test_a_vault_is_asked_once_in_a_while_and_its_words_are_not_shown(tmp_path: Path) -> None:
    now = [0.0]
    log = tmp_path / "log"
    script = f'echo "$NODE $ADDRESS" >> {log}; echo admin; echo secret'
    read = from_command(("sh", "-c", script), "n1", "https://127.0.0.1:1", clock=lambda: now[0])
    assert read() == read() == ("admin", "secret")
    now[0] = 601.0
    assert read() == ("admin", "secret")
    assert log.read_text() == "n1 https://127.0.0.1:1\n" * 2
    with pytest.raises(ConfigError) as caught:
        from_command(("sh", "-c", "echo hunter2; exit 3"), "n1", "x")()
    assert "hunter2" not in str(caught.value)
    assert "ended with 3" in str(caught.value)
