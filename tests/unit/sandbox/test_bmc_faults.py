"""Each fault does what its line of help says, and nothing is left of it when it is cleared."""

import json
from collections.abc import Callable

import pytest

from slurm_lifecycle.sandbox.bmc.faults import COUNTED, KINDS, PATHED
from slurm_lifecycle.sandbox.bmc.sessions import SESSIONS
from tests.unit.sandbox.bmc_bench import BASIC, NAME, PASSWORD, RESET, ROOT, Bench

Check = Callable[[Bench], None]
CHECKS: dict[str, tuple[str, Check]] = {}
BIOS = f"{ROOT}/UpdateService/FirmwareInventory/BIOS"
LOGIN = {"UserName": NAME, "Password": PASSWORD}


def check(name: str, profile: str = "generic") -> Callable[[Check], Check]:
    """Registers the check of a fault; the fault is there when it begins."""

    def register(function: Check) -> Check:
        CHECKS[name] = (profile, function)
        return function

    return register


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_fault_does_what_it_says(name: str) -> None:
    profile, function = CHECKS[name]
    bench = Bench(profile)
    bench.bmc.inject(name)
    function(bench)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_nothing_is_left_of_a_fault_that_was_cleared(name: str) -> None:
    bench = Bench("dgx_h100")
    bench.bmc.inject(name)
    bench.bmc.clear(name)
    assert bench.bmc.faults.names() == []
    assert bench.boot_once().status == 204
    assert bench.finished(bench.reset("ForceOff"))["TaskState"] == "Completed"
    assert bench.finished(bench.reset("On"))["TaskState"] == "Completed"
    assert (bench.power(), bench.chassis.boots, bench.override()) == ("On", ["network"], "Disabled")
    assert bench.get(bench.system)["SerialNumber"] == bench.serial


def test_every_fault_has_a_line_of_help_and_a_source() -> None:
    assert set(CHECKS) == set(KINDS)
    assert all(what and source for what, source in KINDS.values())
    with pytest.raises(ValueError, match=r"no BMC fault 'x': choose one of .*boot-503"):
        Bench("generic").bmc.inject("x")


def test_a_fault_strikes_as_often_as_told_and_where_it_was_told() -> None:
    bench = Bench("generic")
    bench.bmc.inject("busy-503", remaining=2, path="/Systems")
    assert [bench.ask("GET", bench.system).status for _ in range(3)] == [503, 503, 200]
    bench.bmc.inject("drop-connection", remaining=1, path="Reset")
    assert bench.boot_once().status == 204
    assert [bench.reset("ForceOff").drop for _ in range(2)] == [True, False]


@pytest.mark.parametrize("name", sorted(COUNTED - PATHED))
def test_a_fault_that_is_counted_is_used_up(name: str) -> None:
    bench = Bench("generic")
    bench.bmc.inject(name, remaining=1)
    bench.ask("POST", SESSIONS, LOGIN, {})
    bench.ask("GET", bench.system, headers={"x-auth-token": "none"})
    for _ in range(3):
        bench.boot_once()
        bench.set_boot(BootSourceOverrideEnabled="Disabled")
        bench.boot_once()
        bench.reset("ForceOff")
        bench.reset("On")
    assert bench.bmc.faults.names() == []
    bench.boot_once()
    bench.clock.wait(60)
    assert [bench.reset(one).status for one in ("ForceOff", "On")] == [204, 204]
    assert (bench.power(), bench.chassis.boots[-1], bench.override()) == ("On", "network", "Disabled")


@pytest.mark.parametrize("name", sorted(PATHED))
def test_a_fault_of_requests_strikes_once_where_it_was_told(name: str) -> None:
    bench = Bench("generic")
    erase = name.startswith("erase")
    first, second = (f"{ROOT}/Systems/1/Storage/NVMe/Drives/{n}/Actions/Drive.SecureErase" for n in (1, 2))
    bench.bmc.inject(name, remaining=1, path="/Drives/2/")
    replies = [bench.ask("POST", one, {}) for one in (first, second, second)]
    bench.clock.wait(60)
    bench.get(f"{ROOT}/TaskService/Tasks")
    bench.get(bench.system)
    assert bench.bmc.faults.names() == []
    if not erase:
        odd = [bool(one.silent or one.drop or one.wait_s or one.dribble or one.raw or one.status == 503)
               for one in replies]  # fmt: skip
        assert odd == [False, True, False]
    assert len(bench.bmc.erased) == 2


@pytest.mark.parametrize("name", sorted(set(KINDS) - COUNTED))
def test_a_fault_that_is_a_state_takes_neither_count_nor_path(name: str) -> None:
    bench = Bench("generic")
    with pytest.raises(ValueError, match=f"{name} lasts until it is cleared"):
        bench.bmc.inject(name, remaining=1)
    with pytest.raises(ValueError, match=f"{name} concerns no request"):
        bench.bmc.inject(name, path="/Systems")


def test_faults_are_there_together() -> None:
    bench = Bench("generic")
    bench.bmc.inject("conflict-409", seconds=10)
    bench.bmc.inject("slow", seconds=3)
    bench.bmc.inject("boot-continuous")
    assert bench.boot_once().wait_s == 3
    assert bench.override() == "Continuous"
    bench.reset("ForceOff")
    assert bench.reset("On").status == 409
    bench.bmc.clear()
    assert (bench.reset("On").status, bench.reset("On").wait_s) == (204, 0)


# ---------------------------------------------------------------- answers


@check("timeout-after-accept")
def _(bench: Bench) -> None:
    assert bench.reset("ForceOff").silent
    assert bench.chassis.power() == "off"
    assert (bench.bmc.posts()[0].done, bench.bmc.posts()[0].status) == (True, 0)


@check("timeout-before-accept")
def _(bench: Bench) -> None:
    assert bench.reset("ForceOff").silent
    assert (bench.chassis.power(), bench.bmc.posts()) == ("on", [])


@check("drop-connection")
def _(bench: Bench) -> None:
    assert bench.reset("ForceOff").drop
    assert (bench.chassis.power(), len(bench.bmc.posts())) == ("off", 1)


@check("hang")
def _(bench: Bench) -> None:
    assert bench.ask("GET", ROOT).silent
    assert bench.reset("ForceOff").silent
    assert bench.chassis.power() == "on"


@check("slow")
def _(bench: Bench) -> None:
    assert bench.ask("GET", ROOT).wait_s == 20
    bench.bmc.inject("slow", seconds=0.5)
    assert bench.ask("GET", ROOT).wait_s == 0.5


@check("dribble")
def _(bench: Bench) -> None:
    assert bench.ask("GET", ROOT).dribble


@check("busy-503")
def _(bench: Bench) -> None:
    assert bench.ask("GET", ROOT).status == 503
    bench.bmc.inject("busy-503", method="POST")
    assert (bench.ask("GET", ROOT).status, bench.reset("ForceOff").status) == (200, 503)
    assert bench.chassis.power() == "on"


@check("boot-503")
def _(bench: Bench) -> None:
    bench.reset("ForceOff")
    assert bench.ask("GET", ROOT).status == 200
    bench.reset("On")
    bench.clock.wait(59)
    assert bench.ask("GET", ROOT).status == 503
    bench.clock.wait(2)
    assert bench.power() == "On"


@check("hmc-503", "dgx_h100")
def _(bench: Bench) -> None:
    board, gpu = f"{ROOT}/Systems/HGX_Baseboard_0", f"{ROOT}/Chassis/HGX_GPU_SXM_1"
    assert bench.ask("GET", board).status == 200
    bench.reset("ForceOff")
    replies = [bench.ask("GET", one) for one in (board, gpu, f"{board}/Processors")]
    assert [one.status for one in replies] == [503] * 3
    assert "HMCCommuicationFailed" in json.dumps(replies[0].body)
    assert bench.power() == "Off"
    # What is asked for as a whole comes without the part that does not answer.
    members = bench.ask("GET", f"{ROOT}/Chassis", query="$expand=.").body["Members"]
    assert {len(one) for one in members if "/HGX_" in one["@odata.id"]} == {1}
    assert min(len(one) for one in members if "/HGX_" not in one["@odata.id"]) > 1
    bench.reset("On")
    assert bench.ask("GET", board).status == 200


@check("nonsense")
def _(bench: Bench) -> None:
    assert bench.ask("GET", ROOT).raw == b"<html><body>502 Bad Gateway</body></html>"
    for form in KINDS["nonsense"][0].partition(": ")[2].split(", "):
        bench.bmc.inject("nonsense", form=form)
        reply = bench.ask("GET", bench.system)
        assert reply.status == 200
        assert reply.raw is not None
        try:
            found = json.loads(reply.raw)
        except (ValueError, RecursionError):
            found = None
        assert not isinstance(found, dict) or found.get("PowerState") not in ("On", "Off"), form


# ---------------------------------------------------------------- sessions, ETags


@check("expired-token")
def _(bench: Bench) -> None:
    bench.bmc.clear()
    token = {"x-auth-token": bench.ask("POST", SESSIONS, LOGIN, {}).headers["X-Auth-Token"]}
    assert bench.ask("GET", bench.system, headers=token).status == 200
    bench.bmc.inject("expired-token", remaining=1)
    assert bench.ask("GET", bench.system, headers=token).status == 401
    assert bench.ask("POST", SESSIONS, LOGIN, {}).status == 201


@check("session-limit")
def _(bench: Bench) -> None:
    assert bench.ask("POST", SESSIONS, LOGIN, {}).status == 503
    bench.bmc.inject("session-limit", status=400)
    assert bench.ask("POST", SESSIONS, LOGIN, {}).status == 400
    assert bench.ask("POST", SESSIONS, {**LOGIN, "Password": "x"}, {}).status == 401


@check("auth-401")
def _(bench: Bench) -> None:
    assert bench.ask("POST", SESSIONS, LOGIN, {}).status == 401
    assert bench.ask("GET", bench.system).status == 401


@check("etag-412")
def _(bench: Bench) -> None:
    body = {"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}
    wrong = {**BASIC, "if-match": '"0"'}
    assert [bench.ask("PATCH", bench.boot, body, one).status for one in (BASIC, wrong)] == [412, 412]
    assert bench.override() == "Disabled"
    assert bench.boot_once().status == 204


@check("etag-428")
def _(bench: Bench) -> None:
    body = {"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}
    assert bench.ask("PATCH", bench.boot, body).status == 428
    assert bench.ask("PATCH", bench.boot, body, {**BASIC, "if-match": '"0"'}).status == 412
    assert bench.boot_once().status == 204


# ---------------------------------------------------------------- power


@check("conflict-409")
def _(bench: Bench) -> None:
    bench.reset("ForceOff")
    bench.clock.wait(9)
    assert bench.reset("On").status == 409
    bench.clock.wait(2)
    assert (bench.reset("On").status, bench.chassis.power()) == (204, "on")


@check("refuse-reset")
def _(bench: Bench) -> None:
    assert (bench.reset("ForceOff").status, bench.chassis.calls) == (400, [])


@check("power-says")
def _(bench: Bench) -> None:
    assert (bench.power(), bench.chassis.power()) == ("Off", "on")
    bench.bmc.inject("power-says", state="PoweringOn")
    assert bench.power() == "PoweringOn"


@check("power-deaf")
def _(bench: Bench) -> None:
    assert (bench.reset("ForceOff").status, bench.power(), bench.chassis.calls) == (204, "On", [])


@check("no-graceful", "supermicro_hgx")
def _(bench: Bench) -> None:
    info = bench.get(f"{bench.system}/ResetActionInfo")
    assert "GracefulShutdown" not in info["Parameters"][0]["AllowableValues"]
    assert (bench.reset("GracefulShutdown").status, bench.reset("ForceOff").status) == (400, 204)


# ---------------------------------------------------------------- tasks, firmware, drives


@check("stuck-task", "dgx_h100")
def _(bench: Bench) -> None:
    task = bench.finished(bench.reset("ForceOff"))
    assert (task["TaskState"], task["PercentComplete"]) == ("Running", 99)


@check("vanished-task", "dgx_h100")
def _(bench: Bench) -> None:
    place = bench.reset("ForceOff").headers["Location"]
    assert bench.ask("GET", place).status == 404
    assert bench.get(f"{ROOT}/TaskService/Tasks")["Members"] == []


@check("task-exception", "dgx_h100")
def _(bench: Bench) -> None:
    task = bench.finished(bench.reset("ForceOff"))
    assert (task["TaskState"], task["TaskStatus"]) == ("Exception", "OK")
    assert "power state of chassis did not change" in task["Messages"][0]["Message"]
    assert bench.power() == "On"


@check("task-critical", "dgx_h100")
def _(bench: Bench) -> None:
    task = bench.finished(bench.reset("ForceOff"))
    assert (task["TaskState"], task["TaskStatus"]) == ("Completed", "Critical")


def update(bench: Bench, version: str = "9.9") -> None:
    path = f"{ROOT}/UpdateService/Actions/UpdateService.SimpleUpdate"
    reply = bench.ask("POST", path, {"ImageURI": f"http://127.0.0.1/fw-VERSION={version}"})
    assert bench.finished(reply)["TaskState"] == "Completed"


@check("partial-component")
def _(bench: Bench) -> None:
    bench.bmc.inject("partial-component", component="BIOS")
    update(bench)
    assert sorted(bench.bmc.updates.staged) == ["BMC", "CPLD"]


@check("version-after-level")
def _(bench: Bench) -> None:
    bench.bmc.inject("version-after-level", level="ac_cycle")
    update(bench)
    bench.reset("ForceOff")
    bench.reset("On")
    assert bench.get(BIOS)["Version"] == "2.4.1"
    bench.bmc.power.cut_mains()
    bench.clock.wait(60)
    assert bench.get(BIOS)["Version"] == "9.9"


DRIVE = f"{ROOT}/Systems/1/Storage/NVMe/Drives/1"


@check("erase-fails")
def _(bench: Bench) -> None:
    assert bench.ask("POST", f"{DRIVE}/Actions/Drive.SecureErase", {}).status == 400


@check("erase-stuck")
def _(bench: Bench) -> None:
    reply = bench.ask("POST", f"{DRIVE}/Actions/Drive.SecureErase", {})
    assert bench.finished(reply)["TaskState"] in ("New", "Running")
    assert bench.bmc.erased == {}


@check("erase-lies")
def _(bench: Bench) -> None:
    reply = bench.ask("POST", f"{DRIVE}/Actions/Drive.SecureErase", {})
    assert bench.finished(reply)["TaskState"] == "Completed"
    assert bench.bmc.erased == {}


# ---------------------------------------------------------------- boot, identity


@check("boot-ignored")
def _(bench: Bench) -> None:
    bench.boot_once()
    bench.reset("ForceOff")
    bench.reset("On")
    assert (bench.chassis.boots, bench.override()) == (["disk"], "Disabled")


@check("boot-not-set")
def _(bench: Bench) -> None:
    assert (bench.boot_once().status, bench.override()) == (204, "Disabled")


@check("boot-never-cleared")
def _(bench: Bench) -> None:
    bench.boot_once()
    for _ in range(2):
        bench.reset("ForceOff")
        bench.reset("On")
    assert (bench.chassis.boots, bench.override()) == (["network"] * 2, "Once")


@check("boot-continuous")
def _(bench: Bench) -> None:
    assert (bench.boot_once().status, bench.override()) == (204, "Continuous")


@check("boot-post-400")
def _(bench: Bench) -> None:
    reply = bench.boot_once()
    assert reply.status == 400
    assert "UnableToModifyDuringSystemPOST" in json.dumps(reply.body)
    bench.reset("ForceOff")
    assert bench.boot_once().status == 204


@check("boot-clear-refused")
def _(bench: Bench) -> None:
    bench.boot_once()
    assert bench.set_boot(BootSourceOverrideEnabled="Disabled").status == 400
    assert bench.override() == "Once"


@check("wrong-serial")
def _(bench: Bench) -> None:
    assert bench.get(bench.system)["SerialNumber"] == "OTHER-0001"


@check("no-serial")
def _(bench: Bench) -> None:
    assert "SerialNumber" not in bench.get(bench.system)


@check("missing-boot")
def _(bench: Bench) -> None:
    assert "Boot" not in bench.get(bench.system)


def test_resets_that_are_not_known_do_nothing() -> None:
    bench = Bench("generic")
    bodies: tuple[object, ...] = ({"ResetType": "Bogus"}, {"ResetType": None}, {}, [], b"{")
    for body in bodies:
        assert bench.ask("POST", f"{bench.system}/{RESET}", body).status == 400
    assert bench.chassis.calls == []
