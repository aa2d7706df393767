"""The contract over emulated BMCs of each profile, and every vice that was reported from the field."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lifecycle.core.machine import BmcProblem, BootOverride, MachineCommand, PowerState, StepOutcome
from slurm_lifecycle.redfish.pool import BmcPool
from slurm_lifecycle.redfish.profiles import PROFILES
from slurm_lifecycle.redfish.settings import BmcSettings, Credentials, CredentialsError
from slurm_lifecycle.sandbox.bmc.certificates import Certificate, make_certificate
from slurm_lifecycle.sandbox.bmc.host import BmcHost
from slurm_lifecycle.sandbox.bmc.profiles import PROFILES as SIMULATED
from tests.contract.bmc_contract import BmcContract
from tests.contract.bmc_rig import NODE, Desk, credentials, simulated

GRACEFUL, FORCE, ON = MachineCommand.GRACEFUL_OFF, MachineCommand.FORCE_OFF, MachineCommand.ON
ONCE, CLEAR = MachineCommand.BOOT_ONCE, MachineCommand.BOOT_CLEAR
OK, REFUSED = StepOutcome.ACCEPTED, StepOutcome.REFUSED
AMBIGUOUS, UNSUPPORTED = StepOutcome.AMBIGUOUS, StepOutcome.UNSUPPORTED


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("bmc"))


@pytest.fixture(scope="module")
def host(certificate: Certificate) -> Iterator[BmcHost]:
    with BmcHost(certificate) as running:
        yield running


@pytest.fixture(params=sorted(PROFILES))
def desk(request: pytest.FixtureRequest, host: BmcHost, certificate: Certificate) -> Iterator[Desk]:
    with simulated(host, certificate, request.param) as made:
        yield made


@pytest.fixture
def plain(host: BmcHost, certificate: Certificate) -> Iterator[Desk]:
    with simulated(host, certificate, "generic") as made:
        yield made


class TestContract(BmcContract):
    """Over each profile."""


def test_every_profile_has_an_emulated_machine() -> None:
    assert set(PROFILES) == set(SIMULATED)


# ---------------------------------------------------------------- vices: profile by fault


@pytest.mark.parametrize(
    ("fault", "parameters", "expected"),
    [
        ("timeout-after-accept", {"path": "Reset"}, (BmcProblem.NONE, AMBIGUOUS, 1)),
        ("timeout-before-accept", {"path": "Reset"}, (BmcProblem.NONE, AMBIGUOUS, 0)),
        ("drop-connection", {"path": "Reset"}, (BmcProblem.NONE, AMBIGUOUS, 1)),
        ("hang", {}, (BmcProblem.TIMEOUT, REFUSED, 0)),
        ("busy-503", {}, (BmcProblem.BUSY, REFUSED, 0)),
        ("busy-503", {"method": "POST", "path": "Reset"}, (BmcProblem.NONE, REFUSED, 0)),
        ("hmc-503", {}, (BmcProblem.NONE, OK, 1)),
        ("expired-token", {"remaining": 1}, (BmcProblem.NONE, OK, 1)),
        ("session-limit", {}, (BmcProblem.BUSY, REFUSED, 0)),
        ("session-limit", {"status": 400}, (BmcProblem.BUSY, REFUSED, 0)),
        ("auth-401", {}, (BmcProblem.AUTH, REFUSED, 0)),
        ("refuse-reset", {}, (BmcProblem.NONE, REFUSED, 0)),
        ("power-deaf", {}, (BmcProblem.NONE, OK, 1)),
        ("stuck-task", {}, (BmcProblem.NONE, OK, 1)),
        ("vanished-task", {}, (BmcProblem.NONE, OK, 1)),
        ("task-exception", {}, (BmcProblem.NONE, OK, 1)),
        ("task-critical", {}, (BmcProblem.NONE, OK, 1)),
        ("nonsense", {"form": "html"}, (BmcProblem.NONSENSE, REFUSED, 0)),
        ("nonsense", {"form": "truncated"}, (BmcProblem.NONSENSE, REFUSED, 0)),
        ("nonsense", {"form": "list"}, (BmcProblem.NONSENSE, REFUSED, 0)),
        ("nonsense", {"form": "types"}, (BmcProblem.NONSENSE, REFUSED, 0)),
        ("nonsense", {"form": "empty"}, (BmcProblem.NONSENSE, REFUSED, 0)),
        ("nonsense", {"form": "binary"}, (BmcProblem.NONSENSE, REFUSED, 0)),
        ("nonsense", {"form": "huge"}, (BmcProblem.NONSENSE, REFUSED, 0)),
        ("nonsense", {"form": "deep"}, (BmcProblem.NONSENSE, REFUSED, 0)),
        ("nonsense", {"form": "types", "path": "/Systems/"}, (BmcProblem.NONSENSE, REFUSED, 0)),
        ("wrong-serial", {}, (BmcProblem.WRONG_MACHINE, REFUSED, 0)),
        ("no-serial", {}, (BmcProblem.WRONG_MACHINE, REFUSED, 0)),
        ("missing-boot", {}, (BmcProblem.NONE, OK, 1)),
        ("no-graceful", {}, (BmcProblem.NONE, OK, 1)),
    ],
)
def test_a_vice_is_named_and_nothing_is_sent_twice(
    desk: Desk,
    fault: str,
    parameters: dict[str, object],
    expected: tuple[BmcProblem, StepOutcome, int],
) -> None:
    problem, outcome, done = expected
    assert desk.simulator is not None
    desk.simulator.inject(fault, **parameters)  # type: ignore[arg-type]
    assert desk.read().problem is problem
    if fault == "expired-token":
        desk.simulator.inject(fault, **parameters)  # type: ignore[arg-type]
    sent = desk.send(FORCE)
    assert sent.outcome is outcome, sent
    assert "\n" not in sent.detail
    posts = [one for one in desk.simulator.requests if one.path.endswith("ComputerSystem.Reset")]
    arrived = [one for one in posts if one.status != 401]
    assert len(arrived) <= 1, posts
    assert len(desk.simulator.posts()) == done


@pytest.mark.parametrize("fault", ["etag-412", "etag-428"])
def test_an_etag_is_fetched_and_sent_with_a_change_never_with_an_action(desk: Desk, fault: str) -> None:
    """gofish#171 and Redfish-Tacklebox#22: 428; metal-operator#1015: 412 where an action bears If-Match."""
    assert desk.simulator is not None
    desk.simulator.inject(fault)
    assert desk.send(ONCE).outcome is OK
    assert desk.send(FORCE).outcome is OK
    for one in desk.simulator.requests:
        assert ("if-match" in one.headers) == (one.method == "PATCH"), one


def test_the_node_is_switched_on_although_its_baseboard_answers_503(
    host: BmcHost, certificate: Certificate
) -> None:
    """infra-controller#6412: a DGX H100 stayed off, since its client could not do without HGX_Baseboard_0."""
    with simulated(host, certificate, "dgx_h100") as desk:
        assert desk.simulator is not None
        desk.simulator.inject("hmc-503")
        assert desk.send(FORCE).outcome is OK
        assert desk.wait(PowerState.OFF)
        assert desk.send(ON).outcome is OK
        assert desk.wait(PowerState.ON)
        assert not [one for one in desk.simulator.requests if "HGX_" in one.path]


def test_on_right_after_off_is_refused_and_not_repeated_by_the_client(desk: Desk) -> None:
    """LP#2162995: iDRAC10 answers 409 to `On` just after off; who plans the power cycle tries again."""
    assert desk.simulator is not None
    desk.simulator.inject("conflict-409", seconds=3600)
    assert desk.send(FORCE).outcome is OK
    assert desk.send(ON).outcome is REFUSED
    desk.simulator.clear()
    assert desk.send(ON).outcome is OK
    assert desk.wait(PowerState.ON)


def test_an_override_in_post_is_refused(desk: Desk) -> None:
    """LP#2136275: UnableToModifyDuringSystemPOST."""
    assert desk.simulator is not None
    desk.simulator.inject("boot-post-400")
    assert desk.send(ONCE).outcome is REFUSED
    assert desk.send(FORCE).outcome is OK
    assert desk.send(ONCE).outcome is OK


@pytest.mark.parametrize(
    ("fault", "enabled"), [("boot-not-set", "Disabled"), ("boot-continuous", "Continuous"), ("", "Once")]
)
def test_what_is_read_back_is_what_the_bmc_took_not_what_was_sent(
    desk: Desk, fault: str, enabled: str
) -> None:
    assert desk.simulator is not None
    if fault:
        desk.simulator.inject(fault)
    assert desk.send(ONCE).outcome is OK
    boot = desk.read().boot
    assert boot is not None
    assert boot.enabled == enabled
    assert boot.from_network_once == (fault == "")


def test_all_three_fields_are_sent_in_one_request_and_the_mode_only_where_it_may_be(desk: Desk) -> None:
    """Story 2008547 (Supermicro wants all), metal-operator#81 (an iDRAC wants the mode left out)."""
    assert desk.simulator is not None
    assert desk.send(ONCE).outcome is OK
    (patch,) = [one for one in desk.simulator.requests if one.method == "PATCH"]
    fields = patch.body["Boot"]
    assert fields["BootSourceOverrideEnabled"] == "Once"
    assert ("BootSourceOverrideMode" in fields) == (desk.settings.profile not in ("dell", "gb200"))
    mode = "" if desk.settings.profile == "gb200" else "UEFI"
    assert desk.read().boot == BootOverride("Once", "Pxe", mode)


def test_an_override_is_taken_away(desk: Desk) -> None:
    assert desk.send(ONCE).outcome is OK
    assert desk.send(CLEAR).outcome is OK
    boot = desk.read().boot
    assert boot is not None
    assert not boot.stands


def test_boot_goes_to_the_resource_that_owns_it(desk: Desk) -> None:
    """sushy's note on settings: the system answers PropertyNotWritable, and still reads Disabled."""
    assert desk.simulator is not None
    assert desk.send(ONCE).outcome is OK
    (patch,) = [one for one in desk.simulator.requests if one.method == "PATCH"]
    assert patch.path == (PROFILES[desk.settings.profile].settings or PROFILES[desk.settings.profile].system)


def test_a_machine_without_a_polite_way_says_so(desk: Desk) -> None:
    assert desk.simulator is not None
    desk.simulator.inject("no-graceful")
    assert desk.send(GRACEFUL).outcome is UNSUPPORTED
    assert desk.simulator.posts() == []


def test_the_mains_are_cut_as_the_machine_wants_it(desk: Desk) -> None:
    """infra-controller#909: GB200 refuses it while the host is on; a DGX H100 has no such action."""
    profile = PROFILES[desk.settings.profile]
    first = desk.send(MachineCommand.AC_CYCLE)
    if profile.ac_cycle is None:
        assert first.outcome is UNSUPPORTED
        return
    if profile.ac_cycle.needs_off:
        assert first.outcome is REFUSED
        assert desk.send(FORCE).outcome is OK
        assert desk.send(MachineCommand.AC_CYCLE).outcome is OK
    assert desk.chassis is not None
    assert desk.chassis.calls.count("mains") == 1


# ---------------------------------------------------------------- sessions, logins, time


def test_one_session_serves_a_burst_and_is_closed_at_the_end(desk: Desk) -> None:
    """check_redfish PR#198, Foreman smart-proxy PR#895: sessions that are never closed lock everybody out."""
    assert desk.simulator is not None
    for _ in range(5):
        desk.read()
    desk.send(FORCE)
    assert (desk.simulator.sessions.opened, desk.simulator.sessions.most) == (1, 1)
    desk.pool.close()
    assert (desk.simulator.sessions.closed, desk.simulator.sessions.open) == (1, {})


def test_a_session_that_died_does_not_block(plain: Desk) -> None:
    """Story 2009719: a dead session in a cache blocked its BMC until the service was restarted."""
    assert plain.simulator is not None
    assert plain.read().problem is BmcProblem.NONE
    for _ in range(3):
        plain.simulator.sessions.open.clear()
        assert plain.read().problem is BmcProblem.NONE
    plain.simulator.inject("auth-401")
    plain.simulator.sessions.open.clear()
    assert plain.read().problem is BmcProblem.AUTH


def test_a_wrong_password_is_tried_once_and_again_when_it_was_changed(plain: Desk) -> None:
    """BMCs lock an account after a few wrong logins."""
    assert plain.simulator is not None
    given = ["wrong"]
    desk = plain.with_settings(credentials=lambda: Credentials("admin", given[0]))
    for _ in range(4):
        reading = desk.read()
        assert reading.problem is BmcProblem.AUTH
        assert "correct the credentials" in reading.detail
        assert "wrong" not in reading.detail
    assert plain.simulator.sessions.failed == 1
    given[0] = "Emulated-1"
    assert desk.read().problem is BmcProblem.NONE


def test_credentials_that_cannot_be_had_are_named_and_the_bmc_is_not_asked(plain: Desk) -> None:
    assert plain.simulator is not None

    def none() -> Credentials:
        raise CredentialsError("vault: permission denied")

    desk = plain.with_settings(credentials=none)
    reading = desk.read()
    assert reading.problem is BmcProblem.CREDENTIALS
    assert "vault: permission denied" in reading.detail
    assert plain.simulator.requests == []


def test_a_pinned_certificate_needs_no_authority(plain: Desk, certificate: Certificate) -> None:
    right = plain.with_settings(ca_file="", fingerprint=certificate.fingerprint_sha256)
    assert right.read().problem is BmcProblem.NONE
    wrong = plain.with_settings(ca_file="", fingerprint="00" * 32)
    reading = wrong.read()
    assert reading.problem is BmcProblem.TLS
    assert "pinned" in reading.detail


def test_nobody_there(plain: Desk) -> None:
    desk = plain.with_settings(address="https://127.0.0.1:9")
    assert desk.read().problem is BmcProblem.UNREACHABLE
    assert desk.send(FORCE).outcome is REFUSED


def test_a_bmc_that_sends_a_byte_a_second_is_cut(plain: Desk) -> None:
    assert plain.simulator is not None
    plain.simulator.inject("dribble")
    assert plain.read(1.0).problem is BmcProblem.TIMEOUT
    assert plain.send(FORCE, 6.0).outcome in (REFUSED, AMBIGUOUS)
    assert plain.simulator.posts() == []


def test_a_slow_answer_is_delivered_by_a_later_read(host: BmcHost, certificate: Certificate) -> None:
    """Captured DGX H100: the worst answer took 20.9 s; a reading takes several."""
    with simulated(host, certificate, "dgx_h100", read_timeout_s=30.0) as desk:
        assert desk.simulator is not None
        desk.simulator.inject("slow", seconds=0.7)
        began = time.time()
        assert desk.read(0.2).problem is BmcProblem.TIMEOUT
        found = next(one for _ in range(60) if (one := desk.read(0.2)).problem is BmcProblem.NONE)
        assert found.power is PowerState.ON
        assert found.asked_at < began + 0.2
        assert desk.simulator.sessions.opened == 1


def test_no_command_is_begun_when_its_time_is_over(host: BmcHost, certificate: Certificate) -> None:
    with simulated(host, certificate, "generic", read_timeout_s=30.0) as desk:
        assert desk.simulator is not None
        desk.simulator.inject("slow", seconds=1.0)
        sent = desk.send(FORCE, 6.0)
        assert sent.outcome in (REFUSED, AMBIGUOUS)
        time.sleep(1.5)
        assert desk.simulator.posts() == []


def test_bmcs_that_hang_do_not_delay_a_command(host: BmcHost, certificate: Certificate) -> None:
    with simulated(host, certificate, "generic") as first, simulated(host, certificate, "generic") as second:
        assert first.simulator is not None
        first.simulator.inject("hang")
        settings = {"h1": first.settings, "n2": second.settings}
        pool = BmcPool(settings, threads=1, command_threads=1)
        reading = threading.Thread(target=pool.read, args=(["h1"], 5.0))
        reading.start()
        assert pool.send({"n2": FORCE}, 8.0)["n2"].outcome is OK
        reading.join()
        pool.close()


def test_a_closed_pool_leaves_no_thread_behind(plain: Desk) -> None:
    before = {one.name for one in threading.enumerate()}
    desk = plain.with_settings()
    desk.read()
    desk.pool.close()
    time.sleep(0.1)
    left = {one.name for one in threading.enumerate() if one.name.startswith("bmc-")} - before
    assert not {one for one in left if "send" in one}


def test_secrets_are_shown_nowhere(plain: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    desk = plain.with_settings(credentials=credentials(password="hunter2-secret"))
    texts = [desk.read().detail, desk.send(FORCE).detail, repr(desk.settings.credentials()), caplog.text]
    assert not any("hunter2" in one for one in texts)


def test_settings_name_the_node_that_is_not_there() -> None:
    pool = BmcPool({})
    reading = pool.read([NODE], 1.0)[NODE]
    assert reading.problem is BmcProblem.NOT_CONFIGURED
    assert pool.send({NODE: FORCE}, 1.0)[NODE].outcome is REFUSED
    pool.close()
    assert BmcSettings.__slots__


def test_the_files_of_the_certificate_are_private(tmp_path: Path) -> None:
    made = make_certificate(tmp_path / "tls")
    assert made.key_file.stat().st_mode & 0o077 == 0
