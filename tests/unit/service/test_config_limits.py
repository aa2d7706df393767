"""Values that parse and still must not be accepted: they would loosen a limit without a word, or hang."""

import os
from pathlib import Path

import pytest

from slurm_lifecycle.core.policy import ATTEMPTS_KEPT_S, CLOSED_KEPT_S, DAY_S, HITS_KEPT_S
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service.config import load_config


def _refused(folder: Path, site: str = "", policy: str = "") -> str:
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    (folder / "site.toml").write_text(site, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_config(folder / "site.toml")
    return str(refused.value)


@pytest.mark.parametrize(
    ("kept_s", "policy"),
    [
        (ATTEMPTS_KEPT_S, '[caps]\nreboot = [{{ count = 2, within = "{0}" }}]'),
        (HITS_KEPT_S, '[breaker]\nwindow = "{0}"'),
        (CLOSED_KEPT_S, '[relapse]\nwindow = "{0}"'),
    ],
    ids=("caps", "breaker", "relapse"),
)
def test_nothing_is_counted_over_longer_than_the_store_keeps(
    tmp_path: Path, kept_s: float, policy: str
) -> None:
    days = int(kept_s / DAY_S)
    assert f'write at most "{days}d"' in _refused(tmp_path, policy=policy.format(f"{days + 1}d"))
    (tmp_path / "policy.toml").write_text(policy.format(f"{days}d"))
    load_config(tmp_path / "site.toml")


@pytest.mark.parametrize(
    ("site", "policy", "says"),
    [
        ("", f'[deadlines]\ndrain = "{"9" * 400}d"', "deadlines.drain"),
        (
            "",
            '[paths]\nreboot = [{ rung = "reboot", attempts = 99999999999999999999, deadline = "1min" }]',
            "at",
        ),
        ("", '[adopt]\ntools = ["N"]', "a person's own reason"),
        ("", '[adopt]\ntools = ["   "]', "a person's own reason"),
        ("", '[deadlines]\nreturn = "20s"', "daemon.interval_s"),
        ("[daemon]\ninterval_s = 600", "", "daemon.interval_s"),
        ('[store]\npath = "/tmp/a\\u0000b"', "", "store.path"),
        ('[notify]\ncommand = ["/bin/echo", "a\\u0000b"]', "", "notify.command"),
        ('[domains]\n"a\\u001b[31m" = "n1"', "", "domains"),
    ],
)
def test_a_value_at_or_past_the_edge_is_refused_by_its_key(
    tmp_path: Path, site: str, policy: str, says: str
) -> None:
    assert says in _refused(tmp_path, site, policy)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "pipe.toml", Path("/dev/zero"), tmp_path):
        with pytest.raises(ConfigError, match="not a plain file"):
            load_config(path)
