"""Which serial numbers may go on record: what the BMC says, held against the node itself and the record.

A wrong one is the one mistake that the daemon cannot notice: it would switch another machine off.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from slurm_lifecycle.core.machine import BmcProblem, MachineReading
from slurm_lifecycle.errors import BackendError
from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.ports import NodeCommand

_DMI = tuple(f"/sys/class/dmi/id/{what}_serial" for what in ("product", "chassis", "board"))
_SERIAL_LIMIT = 64
# Words that makers leave there in place of a serial number.
_NO_SERIALS = frozenset(
    {
        "",
        "none",
        "null",
        "n/a",
        "na",
        "unknown",
        "default",
        "default string",
        "to be filled by o.e.m.",
        "not specified",
        "not available",
        "not applicable",
        "system serial number",
        "chassis serial number",
        "base board serial number",
        "serial number",
        "0123456789",
        "123456789",
        "1234567890",
    }
)


class Outcome(Enum):
    """What is to come of one node's serial number."""

    NEW = "new"
    REPLACED = "replaced"
    SAME = "on record"
    REFUSED = "refused"
    UNREAD = "not read"


WRITTEN = frozenset({Outcome.NEW, Outcome.REPLACED})


@dataclass(frozen=True, slots=True)
class HostSerials:
    """What a node itself says.

    Attributes:
        values: of product, chassis and board; those that are none are left out.
        problem: why there are none.
    """

    values: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One node.

    Attributes:
        agrees: None where the node itself could not be asked.
        why: one line that says what to do, "" where nothing is.
    """

    node: str
    bmc_serial: str
    host_serials: tuple[str, ...]
    recorded: str
    agrees: bool | None
    outcome: Outcome
    why: str = ""


def is_serial(text: str) -> bool:
    """Whether it tells one machine from another."""
    return text.strip().lower() not in _NO_SERIALS and len(set(text.strip())) > 1


def ask_host(command: NodeCommand, node: str, timeout_s: float) -> HostSerials:
    """Read a node's own serial numbers; never raises."""
    try:
        ended = command.run(node, ("grep", "-sH", "", *_DMI), timeout_s)
    except BackendError as error:
        return HostSerials(problem=plain_line(error.detail, 200))
    found: dict[str, None] = {}
    for line in ended.stdout.splitlines()[:20]:
        path, _, text = line.partition(":")
        serial = plain_line(text, _SERIAL_LIMIT)
        if path in _DMI and is_serial(serial):
            found[serial] = None
    if found:
        return HostSerials(tuple(found))
    # The kernel gives these files mode 0400.
    return HostSerials(problem="it tells none, which only root may read")


def decide(
    readings: Mapping[str, MachineReading],
    hosts: Mapping[str, HostSerials],
    recorded: Mapping[str, str],
    *,
    replace_changed: bool,
    unverified: bool,
) -> tuple[Row, ...]:
    """What may be written, node by node.

    Args:
        readings: of BMCs, made without a serial number to compare with.
        hosts: of the nodes whose BMC told one.
        recorded: serial number by node, of all nodes.
        replace_changed: these nodes were named one by one as exchanged.
        unverified: also where the node itself could not be asked.
    """
    rows = [
        _decide(reading, hosts.get(node, HostSerials()), recorded.get(node, ""), replace_changed, unverified)
        for node, reading in readings.items()
    ]
    return _distinct(rows, recorded)


def _decide(
    reading: MachineReading, host: HostSerials, recorded: str, replace_changed: bool, unverified: bool
) -> Row:
    node, serial = reading.node, reading.serial
    agrees = serial in host.values if host.values else None

    def row(outcome: Outcome, why: str = "") -> Row:
        return Row(node, serial, host.values, recorded, agrees, outcome, why)

    if reading.problem is not BmcProblem.NONE:
        return row(Outcome.UNREAD, reading.detail)
    if not is_serial(serial):
        says = f"{serial!r}" if serial else "no serial number"
        return row(Outcome.REFUSED, f"its BMC tells {says}: set the machine's own one in its BMC or firmware")
    if agrees is False:
        told = " and ".join(host.values)
        return row(
            Outcome.REFUSED, f"the node itself says {told}: the BMC is another machine's; check the address"
        )
    if serial == recorded:
        return row(Outcome.SAME)
    if recorded and not replace_changed:
        remedy = f"`slurm-lifecycle bmc record {node} --replace` if the machine was exchanged"
        return row(Outcome.REFUSED, f"on record is {recorded}: {remedy}, else check the address")
    if agrees is None and not unverified:
        return row(
            Outcome.REFUSED,
            f"the node itself could not be asked ({host.problem}): --unverified takes the BMC's word alone",
        )
    return row(Outcome.REPLACED if recorded else Outcome.NEW)


def _distinct(rows: Sequence[Row], recorded: Mapping[str, str]) -> tuple[Row, ...]:
    """Two nodes with one serial number: one of them has the other's BMC, and nobody can say which."""
    while True:
        after = {**recorded, **{row.node: row.bmc_serial for row in rows if row.outcome in WRITTEN}}
        owners = Counter(after.values())
        twice = {row.node for row in rows if row.outcome in WRITTEN and owners[row.bmc_serial] > 1}
        if not twice:
            return tuple(rows)
        # A node that is refused keeps what is on record, which may now be another one's: look again.
        rows = [_refused_as_twice(row, after) if row.node in twice else row for row in rows]


def _refused_as_twice(row: Row, after: Mapping[str, str]) -> Row:
    others = sorted(node for node, serial in after.items() if serial == row.bmc_serial and node != row.node)
    why = (
        f"the same as of {' '.join(others[:3])}: one of the addresses is wrong; where a machine was renamed, "
        "take its old name out of the file"
    )
    return replace(row, outcome=Outcome.REFUSED, why=why)
