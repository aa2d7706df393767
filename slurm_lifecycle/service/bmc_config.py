"""Which BMC belongs to which node, and how it is reached: `bmc.toml` and `serials.toml` as frozen values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service import credentials
from slurm_lifecycle.service.config_schema import BmcFile, BmcGroup, SerialsFile, checked, meant
from slurm_lifecycle.service.credentials import Secret

PROFILE_NAMES = ("generic", "dgx_h100", "gb200", "supermicro_hgx", "dell")
_SCHEME = "https://"


@dataclass(frozen=True, slots=True)
class BmcEntry:
    """One node's BMC.

    Attributes:
        address: scheme (https), host, and a port where it is not 443.
        secret: gives name and password; raises ConfigError where it cannot.
        serial: of its machine, on record; "" where none is.
    """

    node: str
    address: str
    profile: str
    secret: Callable[[], Secret] = field(repr=False)
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
    groups: BmcFile = checked(BmcFile, read(path, "copy etc/bmc.toml there, or remove [bmc]"), path)
    serials = SerialsFile()
    if serials_path.exists():
        serials = checked(SerialsFile, read(serials_path, ""), serials_path)
    entries: dict[str, BmcEntry] = {}
    for number, group in enumerate(groups.group, 1):
        key = f"{path}: group {number}"
        _check(group, key)
        for node in expand(group.nodes, f"{key}: nodes"):
            entries[node] = _entry(group, node, serials.serial.get(node, ""), key)
    _distinct(entries.values(), path)
    return BmcConfig(path, serials_path, entries, threads)


def _check(group: BmcGroup, key: str) -> None:
    if group.profile not in PROFILE_NAMES:
        raise ConfigError(f"{key}: profile: unknown {group.profile!r}{meant(group.profile, PROFILE_NAMES)}")
    if not group.address.startswith(_SCHEME):
        raise ConfigError(
            f'{key}: address: {group.address!r} is no https address; write "{_SCHEME}{{node}}-bmc"'
        )
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
    address = group.address.replace("{node}", node).rstrip("/")
    if not address.removeprefix(_SCHEME).replace("{", "").replace("}", "").strip():
        raise ConfigError(f"{key}: address: names no host")
    if group.credentials_file:
        secret = credentials.from_file(Path(group.credentials_file))
    elif group.credentials_env:
        secret = credentials.from_environment(group.credentials_env)
    else:
        secret = credentials.from_command(group.credentials_command, node, address)
    return BmcEntry(
        node,
        address,
        group.profile,
        secret,
        serial,
        group.ca_file,
        group.fingerprint,
        group.insecure,
        group.basic,
    )


def _distinct(entries: Iterable[BmcEntry], path: Path) -> None:
    """Two nodes with one BMC: what is done to one would be done to the other."""
    owners: dict[str, str] = {}
    for one in entries:
        for what in (one.address, f"serial {one.serial}" if one.serial else one.address):
            other = owners.setdefault(what, one.node)
            if other != one.node:
                raise ConfigError(f"{path}: {other} and {one.node} have the same {what}: correct one of them")
