"""Which BMC belongs to which node, and how it is reached: `bmc.toml` and `serials.toml` as frozen values."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service import credentials
from slurm_lifecycle.service.config_schema import BmcFile, BmcGroup, SerialsFile, checked, meant
from slurm_lifecycle.service.credentials import Secret

PROFILE_NAMES = ("generic", "dgx_h100", "gb200", "supermicro_hgx", "dell")
_SCHEME = "https://"
# A name or an address, and a port. No path, and no name and password before an @.
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]+")
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")
_SECRETS = ("password", "passwd", "secret", "token")
_NO_PASSWORD = (
    "a password never stands in this file; write it to a file of mode 0600 and name that as credentials_file"
)


@dataclass(frozen=True, slots=True)
class BmcEntry:
    """One node's BMC.

    Attributes:
        address: scheme (https), host, and a port where it is not 443.
        secret: gives name and password; raises ConfigError where it cannot.
        source: where `secret` gets them, in words; the same words for nodes that share one source.
        serial: of its machine, on record; "" where none is.
    """

    node: str
    address: str
    profile: str
    secret: Callable[[], Secret] = field(repr=False)
    source: str
    serial: str = ""
    ca_file: str = ""
    fingerprint: str = ""
    insecure: bool = False
    basic: bool = False


@dataclass(frozen=True, slots=True)
class BmcConfig:
    """All BMCs of a site.

    Attributes:
        path: the file that names them. serials_path: the one with the serial numbers on record.
        threads: how many BMCs are asked at once.
    """

    path: Path
    serials_path: Path
    entries: Mapping[str, BmcEntry]
    threads: int = 32

    @property
    def recorded(self) -> frozenset[str]:
        """Nodes whose machine is known by its serial number: only these are switched off and on."""
        return frozenset(node for node, one in self.entries.items() if one.serial)


def load_bmcs(
    path: Path,
    serials_path: Path,
    *,
    read: Callable[[Path, str], Mapping[str, Any]],
    expand: Callable[[str, str], list[str]],
    threads: int,
) -> BmcConfig:
    """The BMCs that the files name.

    Args:
        path: `bmc.toml`.
        serials_path: `serials.toml`; it need not be there yet.
        read: reads a TOML file; the second argument is the remedy where there is none.
        expand: nodes of a hostlist; the second argument is the key that it stands under.
        threads: how many BMCs are asked at once.

    Raises:
        ConfigError: one line that names file, key and remedy.
    """
    tables = read(path, "copy etc/bmc.toml there, or remove [bmc]")
    _no_password(tables, path)
    groups: BmcFile = checked(BmcFile, tables, path)
    serials = SerialsFile()
    if serials_path.exists():
        serials = checked(SerialsFile, read(serials_path, ""), serials_path)
    entries: dict[str, BmcEntry] = {}
    for number, group in enumerate(groups.group, 1):
        key = f"{path}: group {number}"
        _check(group, key)
        for node in expand(group.nodes, f"{key}: nodes"):
            entries[node] = _entry(group, node, serials.serial.get(node, ""), key)
    _distinct(entries.values(), path, serials_path)
    return BmcConfig(path, serials_path, entries, threads)


def _no_password(tables: Mapping[str, Any], path: Path) -> None:
    """Before anything else is said about the file, so that no message can show one."""
    groups = tables.get("group")
    for number, group in enumerate(groups if isinstance(groups, list) else [], 1):
        for key in group if isinstance(group, dict) else ():
            if key.lower() in _SECRETS:
                raise ConfigError(f"{path}: group {number}: {key}: {_NO_PASSWORD}")


def _check(group: BmcGroup, key: str) -> None:
    if group.profile not in PROFILE_NAMES:
        raise ConfigError(f"{key}: profile: unknown {group.profile!r}{meant(group.profile, PROFILE_NAMES)}")
    if not group.address.startswith(_SCHEME):
        raise ConfigError(
            f'{key}: address: {group.address!r} is no https address; write "{_SCHEME}{{node}}-bmc"'
        )
    if "@" in group.address:
        raise ConfigError(f"{key}: address: {_NO_PASSWORD}")
    trust = [bool(group.ca_file), bool(group.fingerprint), group.insecure]
    if sum(trust) != 1:
        raise ConfigError(
            f"{key}: name one of ca_file, fingerprint, or insecure = true (which checks no certificate)"
        )
    sources = [bool(group.credentials_file), bool(group.credentials_env), bool(group.credentials_command)]
    if sum(sources) != 1:
        raise ConfigError(
            f"{key}: name one of credentials_file, credentials_env, credentials_command; a password never "
            "stands in this file"
        )


def _entry(group: BmcGroup, node: str, serial: str, key: str) -> BmcEntry:
    address = _address(group.address, node, key)
    if group.credentials_file:
        secret = credentials.from_file(Path(group.credentials_file))
        source = f"file {group.credentials_file}"
    elif group.credentials_env:
        secret = credentials.from_environment(group.credentials_env)
        source = f"variables {group.credentials_env}_USERNAME and _PASSWORD"
    else:
        secret = credentials.from_command(group.credentials_command, node, address)
        source = f"command {group.credentials_command[0]}"
    return BmcEntry(
        node=node,
        address=address,
        profile=group.profile,
        secret=secret,
        source=source,
        serial=serial,
        ca_file=group.ca_file,
        fingerprint=group.fingerprint,
        insecure=group.insecure,
        basic=group.basic,
    )


def _address(template: str, node: str, key: str) -> str:
    """The address of a node's BMC.

    Raises:
        ConfigError: a placeholder that there is not, or no host and port is left.
    """
    number = _LAST_NUMBER.search(node)
    if "{number}" in template and number is None:
        raise ConfigError(f"{key}: address: {node} has no number for {{number}}; write {{node}} there")
    plain = str(int(number[0])) if number is not None else ""
    host = template.removeprefix(_SCHEME).replace("{node}", node).replace("{number}", plain).rstrip("/")
    if "{" in host or "}" in host:
        raise ConfigError(
            f"{key}: address: {template!r} has another placeholder than {{node}} and {{number}}; correct it"
        )
    if not _HOST.fullmatch(host):
        raise ConfigError(
            f'{key}: address: {template!r} is not a host and a port; write "{_SCHEME}{{node}}-bmc" or '
            f'"{_SCHEME}10.0.0.{{number}}:443"'
        )
    return f"{_SCHEME}{host}"


def _distinct(entries: Iterable[BmcEntry], path: Path, serials_path: Path) -> None:
    """Two nodes with one BMC: what is done to one would be done to the other."""
    owners: dict[str, str] = {}
    for one in entries:
        for what, file in ((one.address, path), (f"serial {one.serial}", serials_path)):
            if what == "serial ":
                continue
            other = owners.setdefault(what, one.node)
            if other != one.node:
                raise ConfigError(f"{file}: {other} and {one.node} have the same {what}: correct one of them")


def times_fit(policy: Policy, path: Path) -> None:
    """Whether a power cycle leaves time for the boot that proves it.

    Raises:
        ConfigError: it would take more than half of its attempt's deadline.
    """
    limits = policy.machine
    cycle_s = limits.graceful_off_s + limits.force_off_s + limits.off_dwell_s + limits.on_s
    powered = {Rung.POWER, Rung.REIMAGE} if policy.reimage_by_pxe else {Rung.POWER}
    for fault_class, rules in policy.paths.items():
        for rule in rules:
            word = rule.rung.value
            if rule.rung not in powered or word not in policy.rungs or 2 * cycle_s <= rule.deadline_s:
                continue
            raise ConfigError(
                f"{path}: paths.{fault_class.value}: {word}: deadline of {rule.deadline_s:g} s is too short: "
                f"[machine] gives {cycle_s:g} s for off and on, and a boot takes as long again; write "
                f'"{math.ceil(cycle_s / 30)}min" or more, or shorten [machine]'
            )
