"""What `doctor` looks at and what it says, and how slurmctld's configuration is read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from slurm_lifecycle.core.model import NodeView

_NAMED_NODES = 5


class Grade(Enum):
    """How a precondition stands. `UNKNOWN`: it could not be seen from here."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Precondition:
    """One item of `doctor`.

    Attributes:
        text: what was found, and why it matters when it is not good.
        remedy: the exact line to change or command to run, "" when nothing is to be done.
    """

    name: str
    grade: Grade
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """What this host sees of a program that Slurm is told to run.

    Attributes:
        executable: None where the file is not here (it may well be on the nodes).
        ours: whether its text calls our hook; None where it cannot be read here.
    """

    executable: bool | None = None
    ours: bool | None = None


@dataclass(frozen=True, slots=True)
class BmcFacts:
    """What this host knows of the nodes' BMCs without asking one.

    Attributes:
        nodes: those whose BMC is configured.
        secret_problems: why names and passwords cannot be had, one line for each source that gives none.
        suspendable: of `nodes`, those that Slurm's power saving may switch; None where that is not known.
    """

    nodes: frozenset[str]
    secret_problems: tuple[str, ...] = ()
    suspendable: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """Everything that `judge` looks at; None stands for what could not be seen.

    Attributes:
        config: slurmctld's configuration, keys as `scontrol show config` prints them.
        clock_skew_s: slurmctld's clock minus ours.
        admin_level: the user's AdminLevel in slurmdbd, "" where there is no slurmdbd or no such user.
        federation: name of the federation that the cluster is in, "" for none.
        programs: by path, those that the configuration names.
        store_problem: why the store cannot be used, "" when it can.
        bmcs: None where no BMC is configured.
    """

    config: Mapping[str, str]
    nodes: Mapping[str, NodeView] | None = None
    user: str = "root"
    admin_level: str | None = None
    clock_skew_s: float | None = None
    federation: str | None = None
    programs: Mapping[str, Program] = field(default_factory=dict)
    store_problem: str = ""
    bmcs: BmcFacts | None = None


def ok(name: str, text: str) -> Precondition:
    """Nothing to do."""
    return Precondition(name, Grade.OK, text)


def unknown(name: str, text: str, remedy: str = "") -> Precondition:
    """It could not be seen from here."""
    return Precondition(name, Grade.UNKNOWN, text, remedy)


def warn(name: str, text: str, remedy: str) -> Precondition:
    """It works, with the stated weakness."""
    return Precondition(name, Grade.WARN, text, remedy)


def fail(name: str, text: str, remedy: str) -> Precondition:
    """The suite must not act before this is changed."""
    return Precondition(name, Grade.FAIL, text, remedy)


def naming(names: Sequence[str], word: str = "") -> str:
    """The first of some nodes, for the end of a sentence; "" for none."""
    more = f" and {len(names) - _NAMED_NODES} more" if len(names) > _NAMED_NODES else ""
    return f" ({word}{' '.join(names[:_NAMED_NODES])}{more})" if names else ""


def programs_named(config: Mapping[str, str]) -> tuple[str, ...]:
    """The programs that the configuration names and that concern us, in the order of their keys."""
    keys = ("Prolog", "Epilog", "HealthCheckProgram", "RebootProgram")
    return tuple(path for key in keys for path in paths(config, key))


def value(config: Mapping[str, str], key: str) -> str:
    """A setting, "" where Slurm prints a word for none."""
    text = config.get(key, "").strip()
    return "" if text.lower() in ("(null)", "none", "n/a") else text


def paths(config: Mapping[str, str], key: str) -> tuple[str, ...]:
    """The programs of a setting; 24.11 and newer print a list as `Prolog[0]`, `Prolog[1]`, ..."""
    numbered = re.compile(rf"{key}\[\d+\]")
    values = [value(config, name) for name in config if name == key or numbered.fullmatch(name)]
    return tuple(path.strip() for text in values for path in re.split(r"[,:]", text) if path.strip())


def seconds(config: Mapping[str, str], key: str) -> int | None:
    """A setting such as `60 sec`; None where it is no number."""
    found = re.match(r"-?\d+", value(config, key))
    return int(found[0]) if found else None


def words(config: Mapping[str, str], key: str) -> frozenset[str]:
    """The words of a comma list, in lower case."""
    return frozenset(word.strip().lower() for word in value(config, key).split(",") if word.strip())
