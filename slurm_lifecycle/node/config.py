"""The agent's configuration: an INI file in which every key is optional and a mistake is one clear line."""

from __future__ import annotations

import configparser
from dataclasses import dataclass, field
from typing import Callable, Dict, FrozenSet, Optional, Tuple

DEFAULT_PATH = "/etc/slurm-lifecycle/agent.conf"


class ConfigError(Exception):
    """The configuration file is wrong; the text says which key and what to write instead."""


@dataclass(frozen=True)
class AgentConfig:
    """What an administrator may set on a compute node.

    Attributes:
        mode: `observe` (publish only) or `drain` (hardware-certain faults drain the node at once).
        stop_file: while it exists the agent drains nothing.
        image_marker: what the installer of the node's image left, empty for none.
        textfile: node_exporter text file, empty for none.
        channel: where the verdict goes in Slurm: the node's `extra` field or `none`.
        expected_gpus: None where unknown, which makes the count check not applicable.
        disabled: ids of checks that do not run.
        observed: ids of checks that at most warn.
    """

    mode: str = "observe"
    run_dir: str = "/run/slurm-lifecycle"
    interval_s: float = 60.0
    heartbeat_s: float = 30.0
    kmsg: str = "/dev/kmsg"
    scontrol: str = "scontrol"
    node_name: str = ""
    stop_file: str = "/etc/slurm-lifecycle/stop"
    image_marker: str = "/etc/slurm-lifecycle/image.json"
    probe_timeout_s: float = 10.0
    textfile: str = ""
    channel: str = "extra"
    expected_gpus: Optional[int] = None
    filesystems: Tuple[str, ...] = ("/", "/tmp")
    min_free_percent: float = 5.0
    disabled: FrozenSet[str] = field(default_factory=frozenset)
    observed: FrozenSet[str] = field(default_factory=frozenset)


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"write one of: {', '.join(allowed)}")
        return text

    return parse


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise ValueError(f"write a number from {low:g} to {high:g}")
        return value

    return parse


def _gpus(text: str) -> Optional[int]:
    if text and not (text.isdigit() and int(text) <= 64):
        raise ValueError("write a number from 0 to 64, or nothing")
    return int(text) if text else None


def _absolute_paths(text: str) -> Tuple[str, ...]:
    paths = tuple(text.split())
    if any(not path.startswith("/") for path in paths):
        raise ValueError("write absolute paths, separated by blanks")
    return paths


def _ids(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


# Heartbeat: the hooks call a verdict stale after 120 s, so one missed beat must not make it stale.
_KEYS: Dict[Tuple[str, str], Tuple[str, Callable[[str], object]]] = {
    ("agent", "mode"): ("mode", _choice("observe", "drain")),
    ("agent", "run_dir"): ("run_dir", str),
    ("agent", "interval_s"): ("interval_s", _number(1, 3600)),
    ("agent", "heartbeat_s"): ("heartbeat_s", _number(1, 50)),
    ("agent", "kmsg"): ("kmsg", str),
    ("agent", "scontrol"): ("scontrol", str),
    ("agent", "node_name"): ("node_name", str),
    ("agent", "stop_file"): ("stop_file", str),
    ("agent", "image_marker"): ("image_marker", str),
    ("agent", "probe_timeout_s"): ("probe_timeout_s", _number(0.1, 60)),
    ("agent", "textfile"): ("textfile", str),
    ("agent", "channel"): ("channel", _choice("extra", "none")),
    ("checks", "expected_gpus"): ("expected_gpus", _gpus),
    ("checks", "filesystems"): ("filesystems", _absolute_paths),
    ("checks", "min_free_percent"): ("min_free_percent", _number(0, 99)),
    ("checks", "disable"): ("disabled", _ids),
    ("checks", "observe"): ("observed", _ids),
}
# Read by healthcheck.sh alone.
_HOOK_KEYS = {("healthcheck", key) for key in ("chain", "chain_timeout_s", "agent")}


def parse_config(text: str, known_checks: FrozenSet[str]) -> AgentConfig:
    """Read a configuration.

    Args:
        text: the content of the INI file.
        known_checks: ids that `disable` and `observe` may name.

    Raises:
        ConfigError: unknown section, key or check id, or a value out of range.
    """
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, default_section="\0")
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ConfigError(" ".join(str(error).split())) from error
    values: Dict[str, object] = {}
    for section in parser.sections():
        for key, raw in parser.items(section):
            if (section, key) in _HOOK_KEYS:
                continue
            if (section, key) not in _KEYS:
                raise ConfigError(f"unknown key '{key}' in [{section}]: remove it or correct its spelling")
            name, convert = _KEYS[section, key]
            try:
                values[name] = convert(raw.strip())
            except ValueError as error:
                raise ConfigError(f"[{section}] {key} = {raw.strip()}: {error}") from error
    config = AgentConfig(**values)  # type: ignore[arg-type]
    unknown = sorted((config.disabled | config.observed) - known_checks)
    if unknown:
        raise ConfigError(f"unknown check '{unknown[0]}': known are {', '.join(sorted(known_checks))}")
    return config


def load_config(path: Optional[str], known_checks: FrozenSet[str]) -> AgentConfig:
    """Read a configuration file.

    Args:
        path: the file; None for the default one, which need not exist.
        known_checks: ids that `disable` and `observe` may name.
    """
    wanted = path or DEFAULT_PATH
    try:
        with open(wanted, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError as error:
        if path is None:
            return AgentConfig()
        raise ConfigError(f"{path} does not exist: write it or leave --config away") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{wanted} cannot be read: {error}") from error
    try:
        return parse_config(text, known_checks)
    except ConfigError as error:
        raise ConfigError(f"{wanted}: {error}") from error
