"""The same contract over sushy-emulator, which knows nothing of us: a second opinion on power and boot."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from slurm_lifecycle.core.machine import BmcProblem, MachineCommand, PowerState
from slurm_lifecycle.redfish import profiles
from slurm_lifecycle.redfish.pool import BmcPool
from slurm_lifecycle.redfish.settings import BmcSettings
from slurm_lifecycle.sandbox.bmc.certificates import make_certificate
from tests.contract.bmc_contract import BmcContract
from tests.contract.bmc_rig import EMULATED_UUID, NODE, Desk, credentials, emulator

# It has neither sessions nor a serial number of its own; its systems go by their uuid.
_PROFILE = replace(
    profiles.PROFILES["generic"],
    name="emulator",
    system=f"/redfish/v1/Systems/{EMULATED_UUID}",
    serial_key="UUID",
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("emulator")
    certificate = make_certificate(folder / "tls")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with emulator(folder, certificate, port) as url:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield url, str(certificate.ca_file)


@pytest.fixture
def desk(address: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    known = {**profiles.PROFILES, "emulator": _PROFILE}
    monkeypatch.setattr("slurm_lifecycle.redfish.client.PROFILES", known)
    url, ca_file = address
    settings = BmcSettings(
        NODE, url, "emulator", credentials(), serial=EMULATED_UUID, ca_file=ca_file, basic=True
    )
    made = Desk(settings, BmcPool({NODE: settings}))
    made.send(MachineCommand.BOOT_CLEAR)
    if made.read().power is not PowerState.ON:
        made.send(MachineCommand.ON)
        assert made.wait(PowerState.ON)
    yield made
    for pool in (made.pool, *made.changed):
        pool.close()


class TestContract(BmcContract):
    """Unchanged."""


def test_the_emulator_reports_continuous_whatever_is_asked_which_is_not_what_a_reimage_starts_from(
    desk: Desk,
) -> None:
    desk.send(MachineCommand.BOOT_ONCE)
    reading = desk.read()
    assert reading.problem is BmcProblem.NONE
    assert reading.boot is not None
    assert not reading.boot.from_network_once
