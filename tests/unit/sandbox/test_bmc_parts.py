"""What an emulated BMC shows: every reference leads somewhere, and each machine is one of its own."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from slurm_lifecycle.sandbox.bmc.profiles import PROFILES
from slurm_lifecycle.sandbox.bmc.sessions import SESSIONS
from tests.unit.sandbox.bmc_bench import BASIC, NAME, PASSWORD, ROOT, Bench, links

ALL = sorted(PROFILES)


@pytest.fixture(params=ALL)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def everything(bench: Bench) -> dict[str, dict[str, Any]]:
    """All that can be reached from the root."""
    found: dict[str, dict[str, Any]] = {}
    waiting = [ROOT]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = bench.get(path)
            waiting += links(found[path])
    return found


def numbers(value: object) -> Iterator[str]:
    """Every serial number and address in a resource."""
    if isinstance(value, dict):
        yield from (str(value[key]) for key in ("SerialNumber", "MACAddress", "UUID") if key in value)
        for one in value.values():
            yield from numbers(one)
    elif isinstance(value, list):
        for one in value:
            yield from numbers(one)


def test_every_reference_leads_somewhere(bench: Bench) -> None:
    found = everything(bench)
    assert all(one["@odata.id"] in (path, f"{path}/") for path, one in found.items())
    members = [len(one["Members"]) for one in found.values() if "Members" in one]
    assert len(members) > 10
    assert "{" not in "".join(numbers(list(found.values())))
    layout = bench.bmc.profile.layout
    for path in (layout.log, layout.storage, layout.drive.format(n=0), layout.gpu.format(n=layout.gpu_first)):
        assert f"{ROOT}/{path}" in found


def test_two_machines_share_no_serial_number(bench: Bench) -> None:
    first, second = everything(bench), everything(Bench(bench.profile, serial="OTHER-1"))
    assert first.keys() == second.keys()
    both = set(numbers(list(first.values()))) & set(numbers(list(second.values())))
    assert both == set()


def test_the_shared_tree_is_never_changed(bench: Bench) -> None:
    before = json.dumps(everything(Bench(bench.profile)), sort_keys=True)
    for part in bench.bmc.health.names():
        bench.bmc.set_health(part, "Critical")
    bench.bmc.set_part("gpu0", "1")
    bench.boot_once()
    everything(bench)
    assert json.dumps(everything(Bench(bench.profile)), sort_keys=True) == before


def test_each_part_that_is_bad_shows_in_its_place_and_in_the_whole(bench: Bench) -> None:
    assert unwell(bench) == []
    first_of_each = {one.rstrip("0123456789"): one for one in reversed(bench.bmc.health.names())}
    for part, health in zip(first_of_each.values(), itertools.cycle(("Critical", "Warning"))):
        bench.bmc.set_health(part, health)
        assert set(unwell(bench)) == {health}, part
        bench.bmc.set_health(part, "OK")
        assert unwell(bench) == [], part


def unwell(bench: Bench) -> list[str]:
    """Health that is not OK, of what is there."""
    found = []
    for path, one in everything(bench).items():
        if path.startswith(f"{ROOT}/UpdateService"):
            continue
        for row in (one, *rows(one)):
            status = row.get("Status", {})
            if status.get("State") != "Absent":
                found += [status[key] for key in ("Health", "HealthRollup") if status.get(key, "OK") != "OK"]
    return found


def rows(resource: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        one
        for value in resource.values()
        if isinstance(value, list)
        for one in value
        if isinstance(one, dict)
    ]


@pytest.mark.parametrize(
    ("profile", "part", "path", "rollup"),
    [
        ("generic", "psu1", "Chassis/1/Power", "Chassis/1"),
        ("generic", "gpu0", "Systems/1/Processors/GPU0", "Systems/1"),
        ("dgx_h100", "gpu0", "Systems/HGX_Baseboard_0/Processors/GPU_SXM_1", "Systems/HGX_Baseboard_0"),
        ("dgx_h100", "gpu7", "Chassis/HGX_GPU_SXM_8", "Systems/HGX_Baseboard_0"),
        ("dgx_h100", "psu0", "Chassis/DGX/PowerSubsystem/PowerSupplies/PSU0", "Chassis/DGX"),
        ("dgx_h100", "dimm0", "Systems/DGX/Memory/DevType2_DIMM0", "Systems/DGX"),
        ("gb200", "fan0", "Chassis/Chassis_0/Sensors/Chassis_0_FAN_1_FRONT", "Chassis/Chassis_0"),
        ("gb200", "gpu0", "Systems/HGX_Baseboard_0/Processors/GPU_0", "Systems/HGX_Baseboard_0"),
        ("supermicro_hgx", "gpu0", "Chassis/1/PCIeDevices/GPU1", ""),
        ("supermicro_hgx", "temp", "Chassis/1/Thermal", "Chassis/1"),
        ("dell", "drive3", "Systems/System.Embedded.1/Storage/PCIeSSD.Slot.1-1/Drives/Disk.Bay.3",
         "Systems/System.Embedded.1"),
    ],
)  # fmt: skip
def test_parts_are_where_the_captured_trees_have_them(
    profile: str, part: str, path: str, rollup: str
) -> None:
    bench = Bench(profile)
    healthy = bench.get(f"{ROOT}/{path}")
    bench.bmc.set_health(part, "Critical")
    assert bench.get(f"{ROOT}/{path}") != healthy
    assert '"Critical"' in json.dumps(bench.get(f"{ROOT}/{path}"))
    if rollup:
        assert bench.get(f"{ROOT}/{rollup}")["Status"]["HealthRollup"] == "Critical"


def test_a_part_that_is_absent_is_told_as_captured_and_is_no_fault_of_the_whole() -> None:
    bench = Bench("dgx_h100")
    bench.bmc.set_health("gpu3", "Absent")
    gpu = bench.get(f"{ROOT}/Systems/HGX_Baseboard_0/Processors/GPU_SXM_4")
    assert gpu["Status"] == {"State": "Absent", "Health": "Critical"}
    assert bench.get(f"{ROOT}/Systems/HGX_Baseboard_0")["Status"]["HealthRollup"] == "OK"


def test_a_reading_is_over_its_limit_where_its_part_is_bad(bench: Bench) -> None:
    bench.bmc.set_health("temp", "Critical")
    bench.bmc.set_health("fan0", "Critical")
    layout, chassis = bench.bmc.profile.layout, f"{ROOT}/Chassis/{bench.bmc.profile.chassis}"
    if layout.old:
        thermal = bench.get(f"{chassis}/Thermal")
        hot, fan = thermal["Temperatures"][0], thermal["Fans"][0]
        assert hot["ReadingCelsius"] > hot["UpperThresholdCritical"]
        assert fan["Reading"] == 0
    if layout.new:
        hot = bench.get(f"{chassis}/Sensors/{layout.inlet}")
        assert hot["Reading"] > hot["Thresholds"]["UpperCritical"]["Reading"]


def test_what_is_not_there_cannot_be_bad() -> None:
    bench = Bench("gb200")
    with pytest.raises(ValueError, match=r"no part 'psu0' here: choose one of gpu0 .* temp"):
        bench.bmc.set_health("psu0", "Critical")
    with pytest.raises(ValueError, match="no health 'Bad': choose one of OK"):
        bench.bmc.set_health("gpu0", "Bad")


def test_a_part_that_was_exchanged_tells_its_own_number_everywhere(bench: Bench) -> None:
    old = set(numbers(list(everything(bench).values())))
    for part in ("gpu2", "dimm1", "drive0", *(["psu0"] if bench.bmc.profile.layout.psus else [])):
        bench.bmc.set_part(part, f"NEW-{part}")
    new = set(numbers(list(everything(bench).values())))
    assert {one for one in new if one.startswith("NEW-")} == new - old
    # One number is gone for each that came: a GPU and its tray, or a power supply in both forms, share one.
    assert len(old - new) == len(new - old)


def test_events_are_in_the_log_the_newest_first_until_it_is_cleared(bench: Bench) -> None:
    log = f"{ROOT}/{bench.bmc.profile.layout.log}"
    bench.bmc.log_event("Warning", "one")
    bench.bmc.log_event("Critical", "two", "2026-01-02T03:04:05Z")
    entries = bench.get(f"{log}/Entries")
    assert [one["Message"] for one in entries["Members"]] == ["two", "one"]
    assert (entries["Members@odata.count"], entries["Members"][0]["Created"]) == (2, "2026-01-02T03:04:05Z")
    assert bench.get(entries["Members"][0]["@odata.id"])["Severity"] == "Critical"
    assert bench.ask("POST", f"{log}/Actions/LogService.ClearLog", {}).status == 204
    bench.bmc.log_event("OK", "three")
    assert [one["Id"] for one in bench.get(f"{log}/Entries")["Members"]] == ["3"]


# ---------------------------------------------------------------- $expand


def test_members_come_with_their_collection(bench: Bench) -> None:
    path, most = f"{bench.system}/Memory", bench.bmc.profile.layout.expand_levels
    reply = bench.ask("GET", path, query="$expand=.($levels=1)")
    if not most:
        assert reply.status == 501
        return
    assert all("SerialNumber" in one for one in reply.body["Members"])
    features = bench.get(ROOT)["ProtocolFeaturesSupported"]["ExpandQuery"]
    assert features["MaxLevels"] == most
    assert bench.ask("GET", path, query=f"$expand=.($levels={most + 1})").status == 501


@pytest.mark.parametrize(
    ("query", "inside", "outside"),
    [("$expand=.", False, True), ("%24expand=*", True, True), ("$expand=~", True, False)],
)
def test_references_in_links_are_a_matter_of_the_sign(query: str, inside: bool, outside: bool) -> None:
    bench = Bench("dell")
    system = bench.ask("GET", bench.system, query=query).body
    assert ("ChassisType" in system["Links"]["Chassis"][0]) == inside
    assert ("Members" in system["Processors"]) == outside


def test_references_in_a_circle_come_to_an_end() -> None:
    bench = Bench("gb200")
    reply = bench.ask("GET", f"{ROOT}/Chassis", query="$expand=*($levels=6)")
    assert len(json.dumps(reply.body)) < 4_000_000


@pytest.mark.parametrize("query", ["$expand=everything", "$expand=.($levels=x)", "$expand=.($levels=0)"])
def test_an_expansion_that_is_not_known_is_refused(query: str) -> None:
    assert Bench("dell").ask("GET", f"{ROOT}/Chassis", query=query).status == 501


# ---------------------------------------------------------------- accounts, the BMC itself


def test_accounts_are_told_without_passwords_and_taken_away(bench: Bench) -> None:
    accounts = f"{ROOT}/AccountService/Accounts"
    slots = bench.bmc.profile.account_slots
    members = bench.get(accounts)["Members"]
    assert len(members) == (slots or 2)
    other = members[1]["@odata.id"]
    assert bench.get(other)["UserName"] == "service"
    assert bench.get(other)["Password"] is None
    if slots:
        assert bench.ask("DELETE", other).status == 405
        assert bench.ask("PATCH", other, {"Enabled": False, "UserName": ""}).status == 204
        assert bench.get(other)["UserName"] == ""
    else:
        assert bench.ask("DELETE", other).status == 204
        assert bench.ask("GET", other).status == 404


def test_an_empty_account_lets_nobody_in() -> None:
    bench = Bench("dell")
    assert bench.ask("POST", SESSIONS, {"UserName": "", "Password": ""}, {}).status == 401


@pytest.mark.parametrize("profile", [name for name in ALL if PROFILES[name].lockout[0]])
def test_an_account_is_locked_for_a_while_after_wrong_logins(profile: str) -> None:
    bench = Bench(profile)
    times, lasts_s = bench.bmc.profile.lockout
    right = {"UserName": NAME, "Password": PASSWORD}
    for _ in range(times):
        assert bench.ask("POST", SESSIONS, {**right, "Password": "x"}, {}).status == 401
    assert bench.ask("POST", SESSIONS, right, {}).status == 401
    bench.clock.wait(lasts_s + 1)
    assert bench.ask("POST", SESSIONS, right, {}).status == 201


def test_no_more_sessions_than_there_are_places(bench: Bench) -> None:
    right = {"UserName": NAME, "Password": PASSWORD}
    for _ in range(bench.bmc.profile.max_sessions):
        assert bench.ask("POST", SESSIONS, right, {}).status == 201
    assert bench.ask("POST", SESSIONS, right, {}).status == 503
    bench.clock.wait(bench.bmc.profile.session_timeout_s + 1)
    assert bench.ask("POST", SESSIONS, right, {}).status == 201


def test_the_bmc_restarts_and_forgets_its_sessions(bench: Bench) -> None:
    token = {
        "x-auth-token": bench.ask("POST", SESSIONS, {"UserName": NAME, "Password": PASSWORD}, {}).headers[
            "X-Auth-Token"
        ]
    }
    path = f"{ROOT}/Managers/{bench.bmc.profile.manager}/Actions/Manager.Reset"
    assert bench.ask("POST", path, {"ResetType": "Bogus"}, token).status == 400
    assert bench.ask("POST", path, {"ResetType": bench.bmc.profile.manager_resets[0]}, token).status == 204
    assert bench.ask("GET", ROOT, headers={}).silent
    bench.clock.wait(10)
    assert bench.ask("GET", bench.system, headers=token).status == 401
    assert (bench.power(), bench.chassis.calls) == ("On", [])


def test_a_bmc_reset_to_defaults_knows_us_no_more(bench: Bench) -> None:
    path = f"{ROOT}/Managers/{bench.bmc.profile.manager}/Actions/Manager.ResetToDefaults"
    kind = next(one for one in bench.bmc.profile.manager_defaults if one != "PreserveNetworkAndUsers")
    assert bench.ask("POST", path, {"ResetType": kind}).status == 204
    bench.clock.wait(10)
    assert bench.ask("GET", bench.system).status == 401
    names = {one["UserName"] for one in bench.bmc.sessions.accounts.values()}
    assert names - {""} == {"factory"}


# ---------------------------------------------------------------- what is particular to one machine


def test_supermicro_takes_an_override_for_once_unless_told_otherwise() -> None:
    """Story 2008547."""
    bench = Bench("supermicro_hgx")
    assert bench.set_boot(BootSourceOverrideTarget="Pxe").status == 204
    assert bench.override() == "Once"
    bench.set_boot(BootSourceOverrideEnabled="Disabled", BootSourceOverrideTarget="Pxe")
    assert bench.override() == "Disabled"
    action = {**BASIC, "if-match": '"0"'}
    assert bench.ask("POST", f"{bench.system}/Actions/ComputerSystem.Reset", {}, action).status == 412


def test_dell_begins_a_job_when_the_mode_it_has_is_written_again_and_says_409_to_on_while_on() -> None:
    """metal-operator#81."""
    bench = Bench("dell")
    fields = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}
    assert bench.set_boot(**fields, BootSourceOverrideMode="UEFI").status == 400
    assert bench.set_boot(**fields).status == 204
    assert (bench.reset("On").status, bench.chassis.calls) == (409, [])


def test_dell_clears_the_tpm_only_with_a_job() -> None:
    bench = Bench("dell")
    path, body = f"{bench.system}/Bios/Settings", {"Attributes": {"Tpm2Hierarchy": "Clear"}}
    for extra, times in (({}, 0), ({"@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}, 1)):
        assert bench.ask("PATCH", path, {**body, **extra}).status == 204
        bench.reset("ForceOff")
        bench.reset("On")
        assert bench.bmc.tpm_cleared == times


def test_dgx_takes_boot_by_the_settings_alone_and_with_its_etag() -> None:
    bench = Bench("dgx_h100")
    body = {"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}
    assert bench.get(bench.boot)["Boot"]["BootSourceOverrideMode"] is None
    assert bench.ask("PATCH", bench.system, body).status == 400
    assert bench.ask("PATCH", bench.boot, body).status == 428
    assert bench.boot_once().status == 204
    assert bench.get(bench.system)["Boot"]["BootSourceOverrideEnabled"] == "Disabled"


@pytest.mark.parametrize("profile", ALL)
def test_the_mains_are_cut_in_each_makers_way(profile: str) -> None:
    bench = Bench(profile)
    cycle = bench.bmc.profile.ac_cycle
    if cycle is None:
        assert profile in ("generic", "dgx_h100")
        return
    bench.bmc.updates.staged["CPLD"] = "2.0"
    if cycle.needs_off:
        reply = bench.ask("POST", cycle.path, {cycle.key: cycle.value})
        assert reply.status == 400
        assert "ChassisPowerStateOffRequired" in json.dumps(reply.body)
        bench.reset("ForceOff")
    assert bench.ask("POST", cycle.path, {cycle.key: "Bogus"}).status == 400
    body = {cycle.key: cycle.value, **({"FinalPowerState": "On"} if profile == "dell" else {})}
    assert bench.ask("POST", cycle.path, body).status == 204
    assert bench.chassis.calls.count("mains") == 1
    assert bench.ask("GET", ROOT).silent
    bench.clock.wait(10)
    assert bench.power() == ("On" if profile == "dell" else "Off")
    assert bench.bmc.updates.versions == {"CPLD": "2.0"}


def test_gb200_can_be_cut_at_once_by_force() -> None:
    bench = Bench("gb200")
    cycle = bench.bmc.profile.ac_cycle
    assert cycle is not None
    assert bench.ask("POST", cycle.path, {"ResetType": "AuxPowerCycleForce"}).status == 204
    assert bench.chassis.calls == ["mains"]


@pytest.mark.parametrize("profile", ["generic", "dell", "gb200"])
def test_a_drive_is_erased_by_a_task(profile: str) -> None:
    bench = Bench(profile)
    drive = f"{ROOT}/{bench.bmc.profile.layout.drive.format(n=2)}"
    action = bench.get(drive)["Actions"]["#Drive.SecureErase"]
    assert ("@Redfish.ActionInfo" in action) == (profile == "gb200")
    assert bench.ask("POST", action["target"], {"SanitizationType": "Overwrite"}).status == 400
    reply = bench.ask("POST", action["target"], {"SanitizationType": "CryptographicErase"})
    assert bench.bmc.erased == {}
    assert bench.finished(reply)["TaskState"] == "Completed"
    assert bench.bmc.erased == {drive: "CryptographicErase"}


@pytest.mark.parametrize("profile", ["dgx_h100", "supermicro_hgx"])
def test_a_drive_that_offers_no_erase_has_none(profile: str) -> None:
    bench = Bench(profile)
    drive = f"{ROOT}/{bench.bmc.profile.layout.drive.format(n=0)}"
    assert "Actions" not in bench.get(drive)
    assert bench.ask("POST", f"{drive}/Actions/Drive.SecureErase", {}).status == 404


@pytest.mark.parametrize(
    ("profile", "targets", "meant"),
    [
        ("dgx_h100", [], "HostBMC_0"),
        ("dgx_h100", [f"{ROOT}/UpdateService/FirmwareInventory/HGX_0"], "HGX_FW_GPU_SXM_1"),
        ("gb200", [f"{ROOT}/Chassis/HGX_Chassis_0"], "HGX_FW_BMC_0"),
        ("gb200", [f"{ROOT}/UpdateService/FirmwareInventory/FW_BMC_0"], None),
        ("dell", [f"{ROOT}/UpdateService/FirmwareInventory/Nothing"], None),
    ],
)
def test_targets_mean_what_each_maker_means(profile: str, targets: list[str], meant: str | None) -> None:
    """libredfish PR#39: the BMC of a GB200 refuses a target of its own."""
    found = Bench(profile).bmc.updates.meant(targets)
    assert (found is None) == (meant is None)
    assert meant is None or meant in (found or [])
    assert "HGX_FW_BMC_0" not in (found or []) or "HostBMC_0" not in (found or [])


def test_a_password_is_kept_nowhere() -> None:
    bench = Bench("generic")
    bench.ask("POST", SESSIONS, {"UserName": NAME, "Password": PASSWORD}, {})
    bench.ask("PATCH", f"{ROOT}/AccountService/Accounts/2", {"Password": "Another-secret-1"})
    assert PASSWORD not in repr(bench.bmc.requests)
    assert "Another-secret-1" not in repr(bench.bmc.requests)


def test_gb200_refuses_a_boot_mode_and_has_taken_the_other_fields() -> None:
    """bmcweb sets the fields one after another; on an ARM host there is no boot type to set."""
    bench = Bench("gb200")
    assert "BootSourceOverrideMode" not in bench.get(bench.boot)["Boot"]
    fields = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}
    assert bench.set_boot(**fields, BootSourceOverrideMode="UEFI").status == 404
    assert bench.bmc.requests[-1].done
    assert bench.override() == "Once"
    assert bench.set_boot(BootSourceOverrideTarget="UefiHttp").status == 400
    assert not bench.bmc.requests[-1].done


def test_gb200_tells_its_serial_number_at_the_chassis_alone() -> None:
    bench = Bench("gb200")
    assert bench.get(f"{ROOT}/Chassis/Chassis_0")["SerialNumber"] == bench.serial
    assert not {"SerialNumber", "Manufacturer", "Model"} & set(bench.get(bench.system))
    bench.bmc.inject("wrong-serial")
    assert bench.get(f"{ROOT}/Chassis/Chassis_0")["SerialNumber"] == "OTHER-0001"
