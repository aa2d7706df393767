"""The two TOML files as pydantic tables, and their mistakes in one line each."""

import difflib
import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from slurm_lifecycle.core.policy import ATTEMPTS_KEPT_S, CLOSED_KEPT_S, DAY_S, HITS_KEPT_S
from slurm_lifecycle.errors import ConfigError

_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SHOWN_LIMIT = 80
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|d)")


def parse_duration_s(value: object) -> float:
    """Seconds of a text such as `90s`, `30min`, `2h`, `7d`.

    Raises:
        ValueError: no unit, or not a duration; the text names what to write.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f'a duration needs a unit: write "{value}s", "{value}min", "{value}h" or "{value}d"')
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a duration: write "90s", "30min", "2h" or "7d"')
    return float(match[1]) * _UNITS_S[match[2]]


def _at_most(longest_s: float) -> AfterValidator:
    def check(value: float) -> float:
        if value > longest_s:
            raise ValueError(f'too long: write at most "{longest_s / DAY_S:g}d"')
        return value

    return AfterValidator(check)


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError(f"{value!r} holds a character that cannot be printed; take it out")
    return value


def _prefix(value: str) -> str:
    if len(value.strip()) < 3:
        raise ValueError(f"{value!r} is too short: a person's own reason might begin like that")
    return value


# A year is longer than anything that is waited for, and still a time that every part can print.
Duration = Annotated[float, BeforeValidator(parse_duration_s), Field(gt=0), _at_most(366 * DAY_S)]
# What is counted over a longer time than the store keeps would be counted too low.
HitsDuration = Annotated[Duration, _at_most(HITS_KEPT_S)]
CapDuration = Annotated[Duration, _at_most(ATTEMPTS_KEPT_S)]
RelapseDuration = Annotated[Duration, _at_most(CLOSED_KEPT_S)]
Percent = Annotated[float, Field(gt=0, le=100)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Text = Annotated[str, AfterValidator(_printable)]
Word = Annotated[Text, Field(min_length=1)]
Prefix = Annotated[Text, AfterValidator(_prefix)]
Domain = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Table(BaseModel):
    """Strict: TOML has types, so nothing is converted silently; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


# ---------------------------------------------------------------- slurm-lifecycle.toml


class StoreTable(Table):
    path: Text = Field(
        default="/var/lib/slurm-lifecycle/store.db", examples=["/var/lib/slurm-lifecycle/store.db"]
    )


class SlurmTable(Table):
    scontrol: Text = Field(default="scontrol", min_length=1, examples=["/usr/bin/scontrol"])
    squeue: Text = Field(default="squeue", min_length=1, examples=["/usr/bin/squeue"])
    user: Text = Field(default="root", min_length=1, examples=["root"])
    timeout_s: float = Field(default=20.0, gt=0, le=300, examples=[20])


class DaemonTable(Table):
    interval_s: float = Field(default=10.0, ge=0.2, le=600, examples=[10])
    metrics_port: int = Field(default=9341, ge=0, le=65535, examples=[9341])
    log_format: Literal["json", "text"] = Field(default="json", examples=["json"])


class ReimageTable(Table):
    method: Literal["command", "pxe"] = Field(default="command", examples=["command"])
    start: list[Word] = Field(default=[], examples=[["/usr/local/sbin/reimage", "start"]])
    poll: list[Word] = Field(default=[], examples=[["/usr/local/sbin/reimage", "poll"]])
    abort: list[Word] = Field(default=[], examples=[["/usr/local/sbin/reimage", "abort"]])
    marker: bool = Field(default=True, examples=[True])
    image: str = Field(default="default", pattern=r"^[A-Za-z0-9._:/@+-]{1,200}$", examples=["ubuntu-24.04"])
    timeout_s: float = Field(default=60.0, gt=0, le=600, examples=[60])


class RmaTable(Table):
    folder: Text = Field(
        default="/var/lib/slurm-lifecycle/tickets", examples=["/var/lib/slurm-lifecycle/tickets"]
    )
    command: list[Word] = Field(default=[], examples=[["/usr/local/sbin/open-ticket"]])


class BmcTable(Table):
    file: Text = Field(default="", examples=["/etc/slurm-lifecycle/bmc.toml"])
    serials: Text = Field(
        default="/etc/slurm-lifecycle/serials.toml", examples=["/etc/slurm-lifecycle/serials.toml"]
    )
    threads: int = Field(default=32, ge=1, le=256, examples=[32])


class NotifyTable(Table):
    command: list[Word] = Field(default=[], examples=[["/usr/local/sbin/page-oncall"]])


class NodeCommandTable(Table):
    argv: list[Word] = Field(default=[], examples=[["ssh", "-o", "BatchMode=yes", "{node}", "--"]])


class PolicyPath(Table):
    file: Text = Field(default="", examples=["/etc/slurm-lifecycle/policy.toml"])


class SiteFile(Table):
    mode: Literal["observe", "act"] = Field(default="observe", examples=["observe"])
    partitions: list[Word] = Field(default=[], examples=[["gpu"]])
    rungs: list[Word] = Field(default=[], examples=[["drain", "return", "reboot"]])
    store: StoreTable = Field(default=StoreTable())
    slurm: SlurmTable = Field(default=SlurmTable())
    daemon: DaemonTable = Field(default=DaemonTable())
    reimage: ReimageTable = Field(default=ReimageTable())
    rma: RmaTable = Field(default=RmaTable())
    bmc: BmcTable = Field(default=BmcTable())
    notify: NotifyTable = Field(default=NotifyTable())
    node_command: NodeCommandTable = Field(default=NodeCommandTable())
    policy: PolicyPath = Field(default=PolicyPath())
    domains: dict[Domain, str] = Field(default={}, examples=[{"rack1": "gpu[001-016]"}])


# ---------------------------------------------------------------- bmc.toml, serials.toml


class BmcGroup(Table):
    nodes: Word = Field(examples=["gpu[001-016]"])
    address: Word = Field(examples=["https://{node}-bmc"])
    profile: Word = Field(examples=["dgx_h100"])
    ca_file: Text = Field(default="", examples=["/etc/slurm-lifecycle/bmc-ca.pem"])
    fingerprint: str = Field(default="", pattern=r"^([0-9a-fA-F]{2}:?){32}$|^$", examples=["ab12..."])
    insecure: bool = Field(default=False, examples=[True])
    basic: bool = Field(default=False, examples=[True])
    credentials_file: Text = Field(default="", examples=["/etc/slurm-lifecycle/bmc-credentials.toml"])
    credentials_env: str = Field(default="", pattern=r"^[A-Z][A-Z0-9_]{0,60}$|^$", examples=["BMC"])
    credentials_command: list[Word] = Field(default=[], examples=[["/usr/local/sbin/bmc-secret"]])


class BmcFile(Table):
    group: list[BmcGroup] = Field(default=[], examples=[[]])


class SerialsFile(Table):
    serial: dict[str, Word] = Field(default={}, examples=[{"gpu001": "1234567"}])


# ---------------------------------------------------------------- policy.toml


class BudgetTable(Table):
    max_out: Count | None = Field(default=None, examples=[8])
    max_working: Count | None = Field(default=None, examples=[2])


class BudgetsTable(BudgetTable):
    out_percent: Percent | None = Field(default=None, examples=[10.0])
    working_percent: Percent | None = Field(default=None, examples=[1.0])
    partition: dict[str, BudgetTable] = Field(default={}, examples=[{"gpu": {"max_working": 2}}])
    domain: dict[str, BudgetTable] = Field(default={}, examples=[{"rack1": {"max_working": 1}}])


class BreakerTable(Table):
    window: HitsDuration | None = Field(default=None, examples=["10min"])
    percent: Percent | None = Field(default=None, examples=[2.0])
    least: Count | None = Field(default=None, examples=[5])
    most: Count | None = Field(default=None, examples=[32])


class AdoptTable(Table):
    slurm: bool | None = Field(default=None, examples=[True])
    after: Duration | None = Field(default=None, examples=["10min"])
    tools: list[Prefix] = Field(default=[], examples=[["NHC:"]])


class DeadlinesTable(Table):
    drain: Duration | None = Field(default=None, examples=["7d"])
    verify: Duration | None = Field(default=None, examples=["20min"])
    verify_settle: Duration | None = Field(default=None, examples=["90s"])
    return_: Duration | None = Field(default=None, alias="return", examples=["10min"])
    retry_after: Duration | None = Field(default=None, examples=["30s"])
    page_busy_after: Duration | None = Field(default=None, examples=["30min"])


class RelapseTable(Table):
    window: RelapseDuration | None = Field(default=None, examples=["7d"])
    lemon_7d: Count | None = Field(default=None, examples=[3])
    lemon_28d: Count | None = Field(default=None, examples=[5])


class MachineTable(Table):
    graceful_off: Duration | None = Field(default=None, examples=["3min"])
    force_off: Duration | None = Field(default=None, examples=["2min"])
    off_dwell: Duration | None = Field(default=None, examples=["15s"])
    on: Duration | None = Field(default=None, examples=["3min"])
    retry: Duration | None = Field(default=None, examples=["15s"])
    silent: Duration | None = Field(default=None, examples=["10min"])
    dark: Duration | None = Field(default=None, examples=["10min"])
    marker: Duration | None = Field(default=None, examples=["3min"])


class PowerTable(Table):
    at_once: Count | None = Field(default=None, examples=[8])
    ac_cycle: list[Word] = Field(default=[], examples=[["GPU_LOST"]])


class FenceTable(Table):
    days: int | None = Field(default=None, ge=1, le=365, examples=[365])


class PathRow(Table):
    rung: str = Field(examples=["reboot"])
    attempts: Count = Field(default=1, examples=[1])
    deadline: Duration = Field(examples=["30min"])


class CapRow(Table):
    count: Count = Field(examples=[2])
    within: CapDuration = Field(examples=["24h"])


class PolicyFileTables(Table):
    budget: BudgetsTable = Field(default=BudgetsTable())
    breaker: BreakerTable = Field(default=BreakerTable())
    adopt: AdoptTable = Field(default=AdoptTable())
    deadlines: DeadlinesTable = Field(default=DeadlinesTable())
    relapse: RelapseTable = Field(default=RelapseTable())
    fence: FenceTable = Field(default=FenceTable())
    machine: MachineTable = Field(default=MachineTable())
    power: PowerTable = Field(default=PowerTable())
    paths: dict[str, list[PathRow]] = Field(
        default={}, examples=[{"reboot": [{"rung": "reboot", "deadline": "30min"}]}]
    )
    caps: dict[str, list[CapRow]] = Field(default={}, examples=[{"reboot": [{"count": 2, "within": "24h"}]}])


# ---------------------------------------------------------------- errors in one line


def checked(model: type[Any], data: Mapping[str, Any], path: Path) -> Any:
    """The table of `model` in `data`.

    Raises:
        ConfigError: one line about the first mistake, and how many more there are.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        first = problems[0]
        raise ConfigError(f"{path}: {_explain(model, first['loc'], first)}{more}") from None


def _explain(model: type[BaseModel], loc: Sequence[int | str], problem: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in loc)
    known, name, field = _walk(model, loc)
    if problem["type"] == "extra_forbidden":
        return f"{key}: unknown key{meant(str(loc[-1]), known)}"
    text = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    if problem["type"] == "missing":
        text = "missing"
    elif problem["type"] not in ("value_error", "too_long"):
        text = f"{text}, not {_shown(problem['input'])}"
    example = field.examples[0] if field is not None and field.examples else None
    return f"{key}: {text}" + (f"; as in {name} = {_toml(example)}" if example is not None else "")


def _shown(value: object) -> str:
    """A value of a file, short enough for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # Thousands of digits, or of tables in each other.
        return "what stands there"
    return text if len(text) <= _SHOWN_LIMIT else f"{text[:_SHOWN_LIMIT]}..."


def _walk(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[list[str], str, FieldInfo | None]:
    """The keys known where a mistake is, and the innermost declared key that it is about."""
    annotation: Any = model
    known: list[str] = []
    name, field = "", None
    for part in loc:
        if isinstance(part, int) or typing.get_origin(annotation) is dict:
            annotation = typing.get_args(annotation)[-1] if typing.get_args(annotation) else None
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = {info.alias or own: info for own, info in annotation.model_fields.items()}
            known = sorted(fields)
            name, field = part, fields.get(part)
            annotation = field.annotation if field is not None else None
    return known, name, field


def meant(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word: the close match, or all known ones."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}"
    return str(value)
