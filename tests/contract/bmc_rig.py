"""BMCs to ask: emulated ones in every profile, and the field's own emulator."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_lifecycle.core.machine import MachineCommand, MachineReading, PowerState
from slurm_lifecycle.ports import Sent
from slurm_lifecycle.redfish.pool import BmcPool
from slurm_lifecycle.redfish.settings import BmcSettings, Credentials
from slurm_lifecycle.sandbox.bmc.certificates import Certificate
from slurm_lifecycle.sandbox.bmc.chassis import VirtualChassis
from slurm_lifecycle.sandbox.bmc.host import BmcHost
from slurm_lifecycle.sandbox.bmc.simulator import BmcSimulator

NODE = "n1"
SERIAL = "1234ABC"
NAME, PASSWORD = "admin", "Emulated-1"


@dataclass
class Desk:
    """One BMC, and the client that is under test.

    Attributes:
        simulator, chassis: None where it is not ours.
    """

    settings: BmcSettings
    pool: BmcPool
    simulator: BmcSimulator | None = None
    chassis: VirtualChassis | None = None
    changed: list[BmcPool] = field(default_factory=list)

    def read(self, deadline_s: float = 10.0) -> MachineReading:
        return self.pool.read([NODE], deadline_s)[NODE]

    def send(self, command: MachineCommand, deadline_s: float = 10.0) -> Sent:
        return self.pool.send({NODE: command}, deadline_s)[NODE]

    def wait(self, power: PowerState, timeout_s: float = 30.0) -> bool:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if self.read().power is power:
                return True
            time.sleep(0.1)
        return False

    def with_settings(self, **changes: object) -> "Desk":
        """The same BMC by another client."""
        settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        pool = BmcPool({NODE: settings})
        self.changed.append(pool)
        return replace(self, settings=settings, pool=pool)


def credentials(name: str = NAME, password: str = PASSWORD) -> Callable[[], Credentials]:
    return lambda: Credentials(name, password)


@contextmanager
def simulated(
    host: BmcHost, certificate: Certificate, profile: str, *, read_timeout_s: float = 2.0
) -> Iterator[Desk]:
    chassis = VirtualChassis()
    simulator = BmcSimulator(profile, chassis, serial=SERIAL, username=NAME, password=PASSWORD)
    settings = BmcSettings(
        NODE,
        host.add(simulator),
        profile,
        credentials(),
        serial=SERIAL,
        ca_file=str(certificate.ca_file),
        connect_timeout_s=2.0,
        read_timeout_s=read_timeout_s,
    )
    desk = Desk(settings, BmcPool({NODE: settings}), simulator, chassis)
    try:
        yield desk
    finally:
        for pool in (desk.pool, *desk.changed):
            pool.close()


_EMULATOR = """\
SUSHY_EMULATOR_LISTEN_IP = "127.0.0.1"
SUSHY_EMULATOR_LISTEN_PORT = {port}
SUSHY_EMULATOR_FAKE_DRIVER = True
SUSHY_EMULATOR_STATE_DIR = "{folder}"
SUSHY_EMULATOR_SSL_CERT = "{cert}"
SUSHY_EMULATOR_SSL_KEY = "{key}"
SUSHY_EMULATOR_FAKE_SYSTEMS = [
    {{"uuid": "{uuid}", "name": "n1", "power_state": "On", "nics": []}}
]
"""
EMULATED_UUID = "7946b59-9e44-4fa7-8e91-f3527a1ef094"


@contextmanager
def emulator(folder: Path, certificate: Certificate, port: int) -> Iterator[str]:
    """sushy-emulator with its fake driver; its power follows a request within 11 s, seen at the next look."""
    config = folder / "emulator.conf"
    config.write_text(
        _EMULATOR.format(
            port=port, folder=folder, cert=certificate.cert_file, key=certificate.key_file, uuid=EMULATED_UUID
        )
    )
    program = Path(sys.executable).with_name("sushy-emulator")
    with (folder / "emulator.log").open("wb") as log:
        child = subprocess.Popen([str(program), "--config", str(config)], stdout=log, stderr=log)
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(10)
