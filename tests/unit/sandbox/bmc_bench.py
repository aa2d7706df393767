"""One emulated BMC with a clock that is moved by hand, asked in this process or over TLS."""

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_lifecycle.sandbox.bmc.chassis import VirtualChassis
from slurm_lifecycle.sandbox.bmc.http import Reply, Request
from slurm_lifecycle.sandbox.bmc.simulator import BmcSimulator

SERIAL, NAME, PASSWORD = "1234ABC", "admin", "Emulated-1"
ROOT = "/redfish/v1"
BASIC = {"authorization": "Basic " + base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()}
RESET = "Actions/ComputerSystem.Reset"


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Bench:
    """A BMC and what is behind it."""

    profile: str
    serial: str = SERIAL
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.chassis = VirtualChassis(clock=self.clock)
        self.bmc = BmcSimulator(
            self.profile, self.chassis, serial=self.serial, username=NAME, password=PASSWORD, clock=self.clock
        )
        self.system = f"{ROOT}/Systems/{self.bmc.profile.system}"
        self.boot = self.bmc.profile.settings or self.system

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = BASIC,
        query: str = "",
    ) -> Reply:
        """One request, without a network."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(method, path, query, dict(headers), content, len(content))
        return asyncio.run(self.bmc.answer(request))

    def get(self, path: str) -> dict[str, Any]:
        """A resource that has to be there."""
        reply = self.ask("GET", path)
        assert reply.status == 200, (path, reply.status, reply.body)
        assert isinstance(reply.body, dict)
        return reply.body

    def reset(self, kind: str) -> Reply:
        return self.ask("POST", f"{self.system}/{RESET}", {"ResetType": kind})

    def set_boot(self, **fields: str) -> Reply:
        """PATCH of Boot where it belongs, with the ETag that was read."""
        etag = self.ask("GET", self.boot).headers.get("ETag")
        headers = {**BASIC, **({"if-match": etag} if etag else {})}
        return self.ask("PATCH", self.boot, {"Boot": fields}, headers)

    def boot_once(self) -> Reply:
        return self.set_boot(BootSourceOverrideEnabled="Once", BootSourceOverrideTarget="Pxe")

    def override(self) -> str:
        """How the next start is overridden."""
        return str(self.get(self.boot)["Boot"]["BootSourceOverrideEnabled"])

    def power(self) -> str:
        return str(self.get(self.system)["PowerState"])

    def finished(self, reply: Reply) -> dict[str, Any]:
        """The task that a request began, an hour later."""
        assert reply.status == 202, reply
        self.clock.wait(3600)
        return self.get(reply.headers["Location"])


def links(value: object) -> Iterator[str]:
    """Every reference in a resource."""
    if isinstance(value, dict):
        if isinstance(value.get("@odata.id"), str):
            yield value["@odata.id"]
        for one in value.values():
            yield from links(one)
    elif isinstance(value, list):
        for one in value:
            yield from links(one)
