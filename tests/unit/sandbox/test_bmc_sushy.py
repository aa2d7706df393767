"""A real Redfish client against the emulated BMC of each machine, over TLS."""

import json
from collections.abc import Iterator

import pytest
import requests
import sushy
import sushy.exceptions
from sushy.resources.system.system import System

from slurm_lifecycle.sandbox.bmc.certificates import Certificate, make_certificate
from slurm_lifecycle.sandbox.bmc.host import BmcHost
from slurm_lifecycle.sandbox.bmc.profiles import PROFILES
from tests.unit.sandbox.bmc_bench import NAME, PASSWORD, SERIAL, Bench

ONCE, PXE, UEFI = sushy.BOOT_SOURCE_ENABLED_ONCE, sushy.BOOT_SOURCE_TARGET_PXE, sushy.BOOT_SOURCE_MODE_UEFI


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def host(certificate: Certificate) -> Iterator[BmcHost]:
    with BmcHost(certificate) as running:
        yield running


@pytest.fixture(params=sorted(PROFILES))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


@pytest.fixture
def client(bench: Bench, host: BmcHost, certificate: Certificate) -> Iterator[sushy.Sushy]:
    made = connect(host.add(bench.bmc), certificate)
    yield made
    made._auth.close()


def connect(address: str, certificate: Certificate, password: str = PASSWORD) -> sushy.Sushy:
    auth = sushy.auth.SessionAuth(NAME, password)
    ca = str(certificate.ca_file)
    return sushy.Sushy(address, auth=auth, verify=ca, server_side_retries=1, server_side_retries_delay=0)


def system_of(client: sushy.Sushy, bench: Bench) -> System:
    return client.get_system(bench.system)


def test_a_session_is_opened_used_and_closed(bench: Bench, client: sushy.Sushy) -> None:
    system_of(client, bench)
    sessions = bench.bmc.sessions
    assert (sessions.opened, len(sessions.open)) == (1, 1)
    assert [one.path for one in client.get_session_service().sessions.get_members()] == [
        "/redfish/v1/SessionService/Sessions/1"
    ]
    client._auth.close()
    assert (sessions.closed, sessions.open) == (1, {})


def test_a_session_ends_by_itself_and_the_client_logs_in_again(bench: Bench, client: sushy.Sushy) -> None:
    bench.clock.wait(bench.bmc.profile.session_timeout_s + 1)
    assert system_of(client, bench).power_state is sushy.POWER_STATE_ON
    assert bench.bmc.sessions.opened == 2


def test_a_wrong_password_is_refused(host: BmcHost, certificate: Certificate, bench: Bench) -> None:
    with pytest.raises(sushy.exceptions.AccessError):
        connect(host.add(bench.bmc), certificate, "wrong")
    assert bench.bmc.sessions.opened == 0


def test_the_machine_is_named(bench: Bench, client: sushy.Sushy) -> None:
    owner = bench.bmc.profile.serial_at
    tells = client.get_chassis(owner) if owner else system_of(client, bench)
    assert (tells.serial_number, tells.manufacturer, tells.model) == (
        SERIAL,
        bench.bmc.profile.manufacturer,
        bench.bmc.profile.model,
    )
    assert bool(owner) == (system_of(client, bench).serial_number is None)


def test_power_goes_off_and_on(bench: Bench, client: sushy.Sushy) -> None:
    system = system_of(client, bench)
    for kind, state in (
        (sushy.RESET_TYPE_FORCE_OFF, sushy.POWER_STATE_OFF),
        (sushy.RESET_TYPE_ON, sushy.POWER_STATE_ON),
        (sushy.RESET_TYPE_GRACEFUL_SHUTDOWN, sushy.POWER_STATE_OFF),
    ):
        system.reset_system(kind)
        system.invalidate()
        system.refresh()
        assert system.power_state is state
    assert bench.chassis.calls == ["cut", "on disk", "shutdown"]
    assert len(bench.bmc.posts()) == 3


def test_a_boot_from_the_network_happens_once(bench: Bench, client: sushy.Sushy) -> None:
    system = system_of(client, bench)
    system.reset_system(sushy.RESET_TYPE_FORCE_OFF)
    mode = UEFI if bench.bmc.profile.modes and bench.profile != "dell" else None
    system.set_system_boot_options(PXE, ONCE, mode)
    (patch,) = [one for one in bench.bmc.requests if one.method == "PATCH"]
    assert patch.path == bench.boot
    assert bench.override() == "Once"
    # Where a Settings resource owns it, the system itself goes on saying that nothing is overridden.
    assert (bench.get(bench.system)["Boot"]["BootSourceOverrideEnabled"] == "Once") == (
        bench.boot == bench.system
    )
    for _ in range(2):
        system.reset_system(sushy.RESET_TYPE_ON)
        system.reset_system(sushy.RESET_TYPE_FORCE_OFF)
    assert bench.chassis.boots == ["network", "disk"]
    assert bench.override() == "Disabled"


def test_the_inventory_is_listed(bench: Bench, client: sushy.Sushy) -> None:
    system, layout = system_of(client, bench), bench.bmc.profile.layout
    processors = list(system.processors.get_members())
    if bench.bmc.profile.baseboard:
        baseboard = client.get_system(f"/redfish/v1/Systems/{bench.bmc.profile.baseboard}")
        processors += baseboard.processors.get_members()
    gpus = [one for one in processors if one.processor_type is sushy.PROCESSOR_TYPE_GPU]
    # A Supermicro shows them as PCIe devices only.
    assert len(gpus) == (0 if bench.profile == "supermicro_hgx" else 8)
    (store,) = system.storage.get_members()
    assert len({one.serial_number for one in store.drives}) == layout.drives
    rows = client.get_update_service().firmware_inventory.get_members()
    assert {one.identity for one in rows} >= set(bench.bmc.profile.firmware)
    names = [one.identity for one in client.get_manager_collection().get_members()]
    assert names == [bench.bmc.profile.manager, *layout.managers]
    assert len(client.get_chassis_collection().get_members()) >= 1


def test_the_bios_takes_what_clears_the_tpm_at_the_next_start(bench: Bench, client: sushy.Sushy) -> None:
    system, tpm = system_of(client, bench), bench.bmc.profile.tpm
    if tpm is None:
        with pytest.raises(sushy.exceptions.BadRequestError):
            system.bios.set_attribute("TpmOperation", "TPM Clear")
        return
    assert system.bios.attributes[tpm.attribute] == tpm.idle
    on_reset = sushy.APPLY_TIME_ON_RESET if tpm.needs_job else None
    system.bios.set_attribute(tpm.attribute, tpm.clear, apply_time=on_reset)
    assert bench.bmc.tpm_cleared == 0
    system.reset_system(sushy.RESET_TYPE_FORCE_OFF)
    system.reset_system(sushy.RESET_TYPE_ON)
    assert bench.bmc.tpm_cleared == 1
    assert bench.get(system.bios.path)["Attributes"][tpm.attribute] == tpm.idle


def test_firmware_is_updated_by_a_task_and_comes_into_force_at_its_level(
    host: BmcHost, certificate: Certificate
) -> None:
    bench = Bench("supermicro_hgx")
    client = connect(host.add(bench.bmc), certificate)
    target = "/redfish/v1/UpdateService/FirmwareInventory/BIOS"
    uri = "http://127.0.0.1:1/bios-VERSION=9.9.9"
    monitor = client.get_update_service().simple_update(uri, targets=[target])
    task = bench.get(monitor.task_monitor_uri)
    assert (task["TaskState"], "PercentComplete" in task) == ("New", False)
    bench.clock.wait(2)
    task = bench.get(monitor.task_monitor_uri)
    assert (task["TaskState"], task["PercentComplete"]) == ("Running", 40)
    bench.clock.wait(4)
    assert bench.get(monitor.task_monitor_uri)["TaskState"] == "Completed"
    assert bench.get(target)["Version"] == "2.1.V1"
    bench.reset("ForceOff")
    bench.reset("On")
    assert bench.get(target)["Version"] == "9.9.9"
    client._auth.close()


@pytest.mark.parametrize("profile", ["dgx_h100", "gb200", "supermicro_hgx", "dell"])
def test_firmware_is_taken_as_parts_of_one_request(
    host: BmcHost, certificate: Certificate, profile: str
) -> None:
    bench = Bench(profile)
    address = host.add(bench.bmc)
    push = bench.get("/redfish/v1/UpdateService")["MultipartHttpPushUri"]
    targets = {
        "dgx_h100": ["/redfish/v1/UpdateService/FirmwareInventory/HGX_0"],
        "gb200": ["/redfish/v1/Chassis/HGX_Chassis_0"],
    }.get(profile, [])
    files: dict[str, tuple[str | None, str | bytes, str]] = {
        "UpdateParameters": (None, json.dumps({"Targets": targets}), "application/json"),
        "UpdateFile": ("fw.bin", b"\0VERSION=7.7\0" + b"x" * 100_000, "application/octet-stream"),
    }
    ca = str(certificate.ca_file)
    sent = requests.post(address + push, files=files, auth=(NAME, PASSWORD), verify=ca, timeout=10)
    assert sent.status_code == 202
    bench.clock.wait(60)
    assert bench.get(sent.headers["Location"])["TaskState"] == "Completed"
    staged = set(bench.bmc.updates.staged)
    hgx = {name for name in bench.bmc.profile.firmware if name.startswith("HGX_")}
    assert staged == (hgx if bench.bmc.profile.baseboard else set(bench.bmc.profile.firmware))
