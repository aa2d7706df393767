"""Policies to try, in TOML: a production `policy.toml` with one more table, `[simulate]`.

Without that table it is the full ladder in act mode.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.core.policy import Mode
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service.config import RUNG_WORDS, policy_of, read_toml
from slurm_lifecycle.service.config_schema import checked, meant
from slurm_lifecycle.simulation.lab.site import SimPolicy
from slurm_lifecycle.simulation.lab.site_files import find
from slurm_lifecycle.simulation.lab.site_schema import SimulatedPolicy

POLICIES = Path(__file__).parent / "policies"
DEFAULT_POLICIES = ("manual", "reboot-only", "full", "full-standby")


def load_policy(word: str) -> SimPolicy:
    """A shipped policy by name, or a `policy.toml` by path.

    Raises:
        ConfigError: one line that names the file and the field.
    """
    path = find(word, POLICIES, "policy")
    tables: SimulatedPolicy = checked(SimulatedPolicy, read_toml(path, "name another"), path)
    simulate = tables.simulate
    rungs = RUNG_WORDS if simulate.rungs is None else tuple(simulate.rungs)
    for rung in rungs:
        if rung not in RUNG_WORDS:
            raise ConfigError(f"{path}: simulate.rungs: unknown {rung!r}{meant(rung, RUNG_WORDS)}")
    if simulate.operator and simulate.mode == "act":
        both = 'a person and the daemon would both act; set mode = "observe"'
        raise ConfigError(f"{path}: simulate.operator: {both}")
    policy = policy_of(tables, path)
    effects = policy.effects if simulate.reimage else policy.effects - {Rung.REIMAGE}
    return SimPolicy(
        name=path.stem,
        summary=simulate.summary or str(path),
        policy=replace(
            policy, mode=Mode(simulate.mode), partitions=("*",), rungs=frozenset(rungs), effects=effects
        ),
        operator=simulate.operator,
        response_s=simulate.response,
        standby_percent=simulate.standby_percent,
    )


def load_policies(words: Sequence[str]) -> tuple[SimPolicy, ...]:
    """Several, in the order asked for.

    Raises:
        ConfigError: one of them is wrong, or two have one name.
    """
    found = tuple(load_policy(word) for word in words)
    names = [one.name for one in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f"policy {name!r} is there twice; rename one of the files")
    return found
