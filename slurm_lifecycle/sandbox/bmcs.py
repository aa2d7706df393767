"""The BMCs of a sandbox as its owner sees them: files for the daemon, addresses, and faults on demand."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slurm_lifecycle.sandbox import control
from slurm_lifecycle.sandbox.bmc.certificates import CertificateError, make_certificate
from slurm_lifecycle.sandbox.bmc.profiles import PROFILES
from slurm_lifecycle.sandbox.bmc.serving import BmcSpec
from slurm_lifecycle.sandbox.faults import machine_serial
from slurm_lifecycle.sandbox.settings import Layout, SandboxError, Settings

USERNAME = "admin"


def profiles_of(settings: Settings) -> dict[str, str]:
    """Profile of each node's BMC: the settings name one, or several that take turns.

    Raises:
        SandboxError: there is no such profile.
    """
    names = settings.bmc_profile.split(",")
    for name in names:
        if name not in PROFILES:
            raise SandboxError(f"BMC profile {name!r}: choose one of {' '.join(PROFILES)}")
    return {node: names[i % len(names)] for i, node in enumerate(settings.node_names())}


def write_files(settings: Settings, layout: Layout, ports: Sequence[int]) -> None:
    """Certificates, credentials, what is to be served, and the daemon's `bmc.toml` and `serials.toml`.

    Args:
        settings: of the sandbox.
        layout: where its files lie.
        ports: one for each node.

    Raises:
        SandboxError: a profile that there is not, or no openssl.
    """
    profiles, password = profiles_of(settings), secrets.token_urlsafe(12)
    try:
        make_certificate(layout.bmc)
    except CertificateError as problem:
        raise SandboxError(str(problem)) from problem
    specs = [
        BmcSpec(node, profile, port, machine_serial(node), USERNAME, password, settings.gpus)
        for (node, profile), port in zip(profiles.items(), ports, strict=True)
    ]
    secret = f'username = "{USERNAME}"\npassword = "{password}"\n'
    for path, text in (
        (layout.bmc_specs, json.dumps([asdict(spec) for spec in specs], indent=1)),
        (layout.bmc / "credentials.toml", secret),
    ):
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    (layout.bmc / "bmc.toml").write_text(bmc_toml(layout), encoding="utf-8")
    lines = "".join(f'{spec.node} = "{spec.serial}"\n' for spec in specs)
    (layout.bmc / "serials.toml").write_text(f"[serial]\n{lines}", encoding="utf-8")


def _specs(layout: Layout) -> list[BmcSpec]:
    try:
        return [BmcSpec(**raw) for raw in json.loads(layout.bmc_specs.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        raise SandboxError(
            "this sandbox has no BMCs: `slurm-lifecycle sandbox down`, then `up --bmc`"
        ) from None
    except (OSError, ValueError, TypeError) as problem:
        raise SandboxError(f"{layout.bmc_specs} is damaged ({problem}): `sandbox down` removes it") from None


def addresses(layout: Layout) -> dict[str, str]:
    """Address of each node's BMC."""
    return {spec.node: f"https://127.0.0.1:{spec.port}" for spec in _specs(layout)}


def bmc_toml(layout: Layout, nodes: Sequence[str] = ()) -> str:
    """What the daemon is to know of them.

    Args:
        layout: where the files of the sandbox lie.
        nodes: only of these; of all when empty.
    """
    groups = [
        f'[[group]]\nnodes = "{spec.node}"\naddress = "https://127.0.0.1:{spec.port}"\n'
        f'profile = "{spec.profile}"\nca_file = "{layout.bmc}/ca.pem"\n'
        f'credentials_file = "{layout.bmc}/credentials.toml"\n'
        for spec in _specs(layout)
        if not nodes or spec.node in nodes
    ]
    return "\n".join(groups)


class Bmc:
    """A handle on the BMC of one node."""

    def __init__(self, layout: Layout, node: str) -> None:
        """The sandbox runs, with BMCs."""
        self.node = node
        self._layout = layout

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """One command to the process that serves it.

        Raises:
            SandboxError: it does not run, or refuses.
        """
        if not self._layout.bmc_specs.exists():
            _specs(self._layout)
        return control.ask(
            self._layout.bmc_control, command, what=f"BMC of {self.node}", node=self.node, **arguments
        )

    def inject(self, fault: str, **parameters: Any) -> None:
        """Something is wrong with it from now on (`bmc.faults.KINDS`)."""
        self.ask("inject", fault=fault, parameters=parameters)

    def clear(self, fault: str = "") -> None:
        """One of its faults is gone, or all are."""
        self.ask("clear", fault=fault)

    def set_health(self, part: str, health: str) -> None:
        """From now on a part is `OK`, `Warning`, `Critical` or `Absent`."""
        self.ask("set_health", part=part, health=health)

    def end_sessions(self) -> None:
        """As if their time were over: a client that was killed leaves its own open."""
        self.ask("end_sessions")

    def describe(self) -> dict[str, Any]:
        """Power and boot override as it tells them, and its faults."""
        return self.ask("status")

    def requests(self) -> list[dict[str, Any]]:
        """What it was asked to change so far, oldest first, and what came of each."""
        lines = self._layout.bmc_log.read_text(encoding="utf-8").splitlines()
        return [one for one in map(json.loads, lines) if one["node"] == self.node]

    def resets(self) -> list[str]:
        """Values of ResetType that took effect so far, in order."""
        return [
            str(one["body"]["ResetType"])
            for one in self.requests()
            if one["done"] and one["path"].endswith("/ComputerSystem.Reset")
        ]


def inject_by_words(bmc: Bmc, fault: str, details: Mapping[str, str]) -> None:
    """As a person asks for it: `conflict-409` with `seconds=5`; also `clear`, `health`, `event`.

    Raises:
        SandboxError: a detail that is missing or not known.
    """
    values = {key: _number(text) for key, text in details.items()}
    if fault == "clear":
        bmc.clear(details.get("fault", ""))
    elif fault in ("health", "event"):
        needed = ("part", "health") if fault == "health" else ("severity", "message")
        if set(details) != set(needed):
            raise SandboxError(f"bmc-{fault}: give {' and '.join(f'--with {key}=...' for key in needed)}")
        bmc.ask("set_health" if fault == "health" else "log_event", **details)
    else:
        bmc.inject(fault, **values)


def _number(text: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
