"""BMCs, and libraries, at their worst: what may have been done is never called undone, and nothing leaks."""

import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from slurm_lifecycle.core.machine import BmcProblem, MachineCommand, StepOutcome
from slurm_lifecycle.redfish.client import RedfishBmc
from slurm_lifecycle.redfish.connection import Deadline
from slurm_lifecycle.redfish.pool import BmcPool
from slurm_lifecycle.redfish.settings import Credentials
from slurm_lifecycle.sandbox.bmc.certificates import Certificate, make_certificate
from slurm_lifecycle.sandbox.bmc.host import BmcHost
from tests.contract.bmc_raw import (
    RESET,
    SESSIONS,
    SYSTEM,
    TREE,
    Asked,
    Garbage,
    Silence,
    answer,
    raw_desk,
    said,
    until,
)
from tests.contract.bmc_rig import NODE, credentials, simulated

_NOT_ITS_OWN = "169.254.3.1"
FORCE, ONCE, CLEAR = MachineCommand.FORCE_OFF, MachineCommand.BOOT_ONCE, MachineCommand.BOOT_CLEAR
ACCEPTED, REFUSED = StepOutcome.ACCEPTED, StepOutcome.REFUSED
AMBIGUOUS, UNSUPPORTED = StepOutcome.AMBIGUOUS, StepOutcome.UNSUPPORTED


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="module")
def host(certificate: Certificate) -> Iterator[BmcHost]:
    with BmcHost(certificate) as running:
        yield running


def _deadline(after_s: float) -> Deadline:
    return Deadline(time.monotonic() + after_s)


# ---------------------------------------------------------------- what came of a command


def test_tls_that_breaks_after_the_command_was_written_leaves_it_in_doubt(certificate: Certificate) -> None:
    """An error of TLS is no proof that nothing was sent: only one before the first byte is."""

    def odd(asked: Asked) -> bytes | None:
        if asked.path == RESET:
            raise Garbage
        return None

    with raw_desk(certificate, odd) as (desk, bmc):
        assert desk.send(FORCE).outcome is AMBIGUOUS
        assert len(bmc.of("POST", RESET)) == 1


def test_a_logout_that_is_refused_says_nothing_of_the_command_before_it(certificate: Certificate) -> None:
    def odd(asked: Asked) -> bytes | None:
        if asked.path == RESET:
            raise Silence
        return answer(401) if asked.method == "DELETE" else None

    with raw_desk(certificate, odd) as (desk, bmc):
        assert desk.send(FORCE).outcome is AMBIGUOUS
        assert len(bmc.of("DELETE")) == 1
        assert len(bmc.of("POST", SESSIONS)) == 1


@pytest.mark.parametrize("status", [400, 503])
@pytest.mark.parametrize("text", ["SYS518: the iDRAC is not ready", "iLO: InvalidOperationForSystemState"])
def test_no_command_is_repeated_where_sushy_would(certificate: Certificate, status: int, text: str) -> None:
    """sushy 5.14, Connector._op: a POST that is answered so is sent again after a while."""

    def odd(asked: Asked) -> bytes | None:
        return answer(status, said("X", text)) if asked.path == RESET else None

    with raw_desk(certificate, odd) as (desk, bmc):
        assert desk.send(FORCE).outcome is REFUSED
        assert len(bmc.of("POST", RESET)) == 1


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, ACCEPTED), (202, ACCEPTED), (204, ACCEPTED), (307, AMBIGUOUS), (400, REFUSED), (404, REFUSED),
        (405, UNSUPPORTED), (408, AMBIGUOUS), (409, REFUSED), (429, REFUSED), (500, AMBIGUOUS),
        (501, UNSUPPORTED), (502, AMBIGUOUS), (503, REFUSED), (504, AMBIGUOUS), (507, AMBIGUOUS),
    ],
)  # fmt: skip
@pytest.mark.parametrize("body", [{"a": 1}, ["a"], None], ids=["object", "list", "empty"])
def test_what_each_status_means(
    certificate: Certificate, status: int, outcome: StepOutcome, body: object
) -> None:
    def odd(asked: Asked) -> bytes | None:
        return answer(status, body, Location="/redfish/v1/Elsewhere") if asked.path == RESET else None

    with raw_desk(certificate, odd) as (desk, bmc):
        sent = desk.send(FORCE)
        # sushy cannot read an error that is no object; then it is in doubt, which is the safe side.
        assert sent.outcome in ((outcome, AMBIGUOUS) if body == ["a"] and status >= 400 else (outcome,)), sent
        assert len(bmc.of("POST", RESET)) == 1
        assert "\n" not in sent.detail


def test_a_command_that_the_account_may_not_give_costs_one_session_not_one_each(
    certificate: Certificate,
) -> None:
    """sushy logs in anew at a 403 and forgets the session before, which stays open."""

    def odd(asked: Asked) -> bytes | None:
        return answer(403, said("InsufficientPrivilege", "no")) if asked.path == RESET else None

    with raw_desk(certificate, odd) as (desk, bmc):
        sent = desk.send(FORCE)
        assert sent.outcome is REFUSED
        assert "role" in sent.detail
        assert len(bmc.of("POST", RESET)) == 1
        assert (len(bmc.of("POST", SESSIONS)), len(bmc.of("DELETE"))) == (1, 1)


def test_a_reset_of_another_system_is_not_sent(certificate: Certificate) -> None:
    """A node's power must not be sought at its neighbour in a chassis of several."""
    other = {"#ComputerSystem.Reset": {"target": RESET.replace("/1/", "/2/")}}

    def odd(asked: Asked) -> bytes | None:
        return answer(200, {**TREE[SYSTEM], "Actions": other}) if asked.path == SYSTEM else None

    with raw_desk(certificate, odd) as (desk, bmc):
        assert desk.send(FORCE).outcome is REFUSED
        assert not [one for one in bmc.of("POST") if one.path != SESSIONS]


def test_a_machine_that_does_not_boot_so_is_not_asked_to(certificate: Certificate) -> None:
    targets = {"BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Hdd", "UefiHttp"]}

    def odd(asked: Asked) -> bytes | None:
        boot = {**TREE[SYSTEM]["Boot"], **targets}
        return answer(200, {**TREE[SYSTEM], "Boot": boot}) if asked.path == SYSTEM else None

    with raw_desk(certificate, odd) as (desk, bmc):
        sent = desk.send(ONCE)
        assert sent.outcome is UNSUPPORTED
        assert "UefiHttp" in sent.detail
        assert desk.send(CLEAR).outcome is ACCEPTED
        assert len(bmc.of("PATCH")) == 1


def test_taking_the_override_away_leaves_the_boot_mode(certificate: Certificate) -> None:
    """Story 2008252: a mode that is written with the override outlives it."""
    with raw_desk(certificate) as (desk, bmc):
        assert desk.send(CLEAR).outcome is ACCEPTED
        (patch,) = bmc.of("PATCH")
        assert patch.body["Boot"]["BootSourceOverrideMode"] == "Legacy"


# ---------------------------------------------------------------- logins and sessions


def test_a_password_that_a_bmc_quotes_is_not_shown(certificate: Certificate) -> None:
    """Redfish messages quote values: PropertyValueFormatError says which."""

    def odd(asked: Asked) -> bytes | None:
        if asked.path != SESSIONS:
            return None
        return answer(400, said("PropertyValueFormatError", f"{asked.body['Password']!r} is not accepted"))

    with raw_desk(certificate, odd, credentials=credentials(password="hunter2-secret")) as (desk, _):
        for text in (desk.read().detail, desk.send(FORCE).detail):
            assert "is not accepted" in text
            assert "hunter2" not in text


def test_a_session_is_ended_at_the_bmc_wherever_that_says_it_is(certificate: Certificate) -> None:
    """BMCs name themselves by an address of their own network; the token is sent nowhere else."""
    place = f"https://{_NOT_ITS_OWN}{SESSIONS}/7"

    def odd(asked: Asked) -> bytes | None:
        login = (asked.method, asked.path) == ("POST", SESSIONS)
        return answer(201, {}, X_Auth_Token="t", Location=place) if login else None

    with raw_desk(certificate, odd) as (desk, bmc):
        assert desk.read().problem is BmcProblem.NONE
        desk.pool.close()
        assert [one.path for one in bmc.of("DELETE")] == [f"{SESSIONS}/7"]


def test_a_session_service_elsewhere_is_told_no_password(certificate: Certificate) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0.2)
        place = f"https://127.0.0.1:{elsewhere.getsockname()[1]}{SESSIONS}"

        def odd(asked: Asked) -> bytes | None:
            root = {**TREE["/redfish/v1/"], "Links": {"Sessions": {"@odata.id": place}}}
            return answer(200, root) if asked.path == "/redfish/v1/" else None

        with raw_desk(certificate, odd) as (desk, _):
            assert desk.read().problem is BmcProblem.NONSENSE
        with pytest.raises(TimeoutError):
            elsewhere.accept()


def test_a_session_that_has_ended_is_not_opened_again_in_order_to_be_ended(
    host: BmcHost, certificate: Certificate
) -> None:
    """sushy answers the 401 of the logout with a login, whose session then stays (gofish#75: RAC0218)."""
    with simulated(host, certificate, "generic") as desk:
        assert desk.simulator is not None
        assert desk.read().problem is BmcProblem.NONE
        desk.simulator.sessions.open.clear()
        desk.pool.close()
        assert desk.simulator.sessions.opened == 1
        assert desk.simulator.sessions.open == {}


def test_no_session_left_for_one_that_has_ended_is_busy_not_a_wrong_password(
    host: BmcHost, certificate: Certificate
) -> None:
    with simulated(host, certificate, "generic") as desk:
        assert desk.simulator is not None
        assert desk.read().problem is BmcProblem.NONE
        desk.simulator.inject("expired-token", remaining=1)
        desk.simulator.inject("session-limit")
        assert desk.read().problem is BmcProblem.BUSY
        sent = desk.send(FORCE)
        assert sent.outcome is REFUSED
        assert "sessions" in sent.detail


@pytest.mark.parametrize("basic", [True, False])
def test_a_wrong_password_is_tried_once_by_reads_and_commands_alike(
    host: BmcHost, certificate: Certificate, basic: bool
) -> None:
    """Captured Supermicro: an account is locked after three wrong logins; an iDRAC's likewise."""
    with simulated(host, certificate, "supermicro_hgx") as desk:
        assert desk.simulator is not None
        given = ["wrong-1"]
        changed = desk.with_settings(basic=basic, credentials=lambda: Credentials("admin", given[0]))
        for _ in range(4):
            assert changed.read().problem is BmcProblem.AUTH
            assert changed.send(FORCE).outcome is REFUSED
        assert not desk.simulator.sessions.locked("admin")
        given[0] = "Emulated-1"
        assert changed.read().problem is BmcProblem.NONE


def test_a_password_that_was_changed_under_an_open_session_is_tried_once(
    host: BmcHost, certificate: Certificate
) -> None:
    with simulated(host, certificate, "generic") as desk:
        assert desk.simulator is not None
        assert desk.read().problem is BmcProblem.NONE
        desk.simulator.sessions.accounts["1"]["Password"] = "New-1"
        desk.simulator.sessions.open.clear()
        for _ in range(3):
            assert desk.read().problem is BmcProblem.AUTH
        assert desk.simulator.sessions.failed == 1


_FORGETS = """
import sys
from slurm_lifecycle.redfish.pool import BmcPool
from slurm_lifecycle.redfish.settings import BmcSettings, Credentials

pool = BmcPool({"n1": BmcSettings(
    "n1", sys.argv[1], "generic", lambda: Credentials("admin", "Emulated-1"), ca_file=sys.argv[2]
)})
print(pool.read(["n1"], 10.0)["n1"].power.value)
"""


def test_a_program_that_ends_without_closing_leaves_no_session(
    host: BmcHost, certificate: Certificate
) -> None:
    with simulated(host, certificate, "generic") as desk:
        assert desk.simulator is not None
        argv = [sys.executable, "-c", textwrap.dedent(_FORGETS), desk.settings.address]
        ended = subprocess.run(
            [*argv, str(certificate.ca_file)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "on", "")
        assert (desk.simulator.sessions.opened, desk.simulator.sessions.closed) == (1, 1)


# ---------------------------------------------------------------- places


def test_a_get_follows_its_bmc_to_a_slash(certificate: Certificate) -> None:
    """HPE iLO answers 308 to a path without a slash at its end."""

    def odd(asked: Asked) -> bytes | None:
        if asked.path == SYSTEM:
            return answer(308, None, Location=f"{SYSTEM}/")
        return answer(200, TREE[SYSTEM]) if asked.path == f"{SYSTEM}/" else None

    with raw_desk(certificate, odd) as (desk, _):
        assert desk.read().problem is BmcProblem.NONE


@pytest.mark.parametrize("place", [f"https://{_NOT_ITS_OWN}/redfish/v1/", "http://127.0.0.1/x", SYSTEM])
def test_a_bmc_leads_its_client_nowhere_else_and_not_in_circles(certificate: Certificate, place: str) -> None:
    def odd(asked: Asked) -> bytes | None:
        return answer(302, {"x": "y" * 100}, Location=place) if asked.path == SYSTEM else None

    with raw_desk(certificate, odd) as (desk, bmc):
        assert desk.read().problem is BmcProblem.NONSENSE
        assert desk.send(FORCE).outcome is REFUSED
        assert bmc.of("POST", RESET) == []


def test_nothing_of_the_environment_leads_elsewhere(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent")
    with raw_desk(certificate) as (desk, _):
        assert desk.read().problem is BmcProblem.NONE


def test_plain_http_is_spoken_to_nobody(certificate: Certificate) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        with raw_desk(certificate) as (desk, _):
            plain = desk.with_settings(address=f"http://127.0.0.1:{listener.getsockname()[1]}")
            assert plain.read().problem is not BmcProblem.NONE
        with pytest.raises(TimeoutError):
            listener.accept()


# ---------------------------------------------------------------- time and threads


def test_a_bmc_that_never_shakes_hands_is_left(certificate: Certificate) -> None:
    with raw_desk(certificate) as (desk, bmc):
        bmc.shakes_hands = False
        one = RedfishBmc(desk.settings)
        assert one.read(_deadline(5.0)).problem is BmcProblem.TIMEOUT
        assert one.send(FORCE, _deadline(8.0)).outcome is REFUSED


def test_headers_that_come_byte_by_byte_end_with_the_deadline_of_the_whole(certificate: Certificate) -> None:
    """requests counts its time-out from byte to byte; no reaper is needed to end it."""
    with raw_desk(certificate) as (desk, bmc):
        bmc.byte_s = 0.3
        one = RedfishBmc(desk.settings)
        began = time.monotonic()
        assert one.read(_deadline(2.0)).problem is BmcProblem.TIMEOUT
        # Twenty times what it has: an answer of 300 bytes takes 90 s.
        assert time.monotonic() - began < 40
        one.close()


def test_a_logout_that_never_ends_holds_nobody(certificate: Certificate) -> None:
    def odd(asked: Asked) -> bytes | None:
        if asked.method == "DELETE":
            raise Silence
        return None

    with raw_desk(certificate, odd) as (desk, bmc):
        assert desk.read().problem is BmcProblem.NONE
        began = time.monotonic()
        desk.pool.close()
        assert time.monotonic() - began < 30
        assert len(bmc.of("DELETE")) == 1


def test_a_command_goes_before_whatever_else_is_asked_of_its_bmc(
    host: BmcHost, certificate: Certificate
) -> None:
    """A DGX's health takes minutes to read; a machine that has to be switched off does not wait for it."""
    with simulated(host, certificate, "generic") as desk:
        assert desk.simulator is not None
        problems: list[BmcProblem] = []
        begun = threading.Event()

        def long_work(bmc: RedfishBmc, deadline: Deadline) -> None:
            try:
                with bmc.connected(deadline) as connection:
                    while True:
                        connection.get(bmc.profile.system)
                        begun.set()
                        time.sleep(0.05)
            except Exception as error:
                problems.append(bmc.problem(error)[0])

        reader = threading.Thread(target=desk.pool.run, args=([NODE], long_work, 60.0))
        reader.start()
        assert begun.wait(20)
        assert desk.send(FORCE, 20.0).outcome is ACCEPTED
        reader.join()
        assert problems == [BmcProblem.BUSY]
        # The session was not lost over it.
        assert desk.simulator.sessions.opened == 1


def test_a_bmc_that_hangs_holds_one_reader_and_delays_later_reads_little(
    host: BmcHost, certificate: Certificate
) -> None:
    with simulated(host, certificate, "generic", read_timeout_s=30.0) as desk:
        assert desk.simulator is not None
        desk.simulator.inject("hang")
        assert desk.read(0.5).problem is BmcProblem.TIMEOUT
        before = threading.active_count()
        began = time.monotonic()
        for _ in range(3):
            assert desk.read(60.0).problem is BmcProblem.TIMEOUT
        assert time.monotonic() - began < 20
        assert threading.active_count() <= before


def test_a_round_over_the_fleet_delays_no_read_and_asks_the_silent_last(
    host: BmcHost, certificate: Certificate
) -> None:
    with simulated(host, certificate, "generic") as first, simulated(host, certificate, "generic") as second:
        assert first.simulator is not None
        first.simulator.inject("hang")
        pool = BmcPool({"a-hangs": first.settings, "b": second.settings}, threads=1, command_threads=1)
        order: list[str] = []

        def work(bmc: RedfishBmc, deadline: Deadline) -> BmcProblem:
            order.append(bmc.settings.address)
            return bmc.read(deadline).problem

        pool.run(pool.nodes, work, 20.0)
        order.clear()
        round_ = threading.Thread(target=pool.run, args=(pool.nodes, work, 20.0))
        round_.start()
        assert until(lambda: first.settings.address in order)
        assert pool.read(["b"], 5.0)["b"].problem is BmcProblem.NONE
        round_.join()
        pool.close()
        assert order == [second.settings.address, first.settings.address]


def test_one_connection_serves_a_piece_of_work_and_a_command_has_its_own(certificate: Certificate) -> None:
    """A handshake is most of what a GET costs; a command over one that is being closed is in doubt."""
    with raw_desk(certificate) as (desk, bmc):
        assert desk.read().problem is BmcProblem.NONE
        assert {one.headers["connection"] for one in bmc.asked} == {"keep-alive"}
        bmc.asked.clear()
        assert desk.send(FORCE).outcome is ACCEPTED
        assert {one.headers["connection"] for one in bmc.asked} == {"close"}


def test_a_pool_that_was_closed_answers_and_asks_nobody(host: BmcHost, certificate: Certificate) -> None:
    with simulated(host, certificate, "generic") as desk:
        assert desk.simulator is not None
        desk.pool.close()
        desk.pool.close()
        assert desk.read().problem is BmcProblem.BUSY
        assert desk.send(FORCE).outcome is REFUSED
        assert desk.pool.run([NODE], lambda bmc, _: bmc.settings.node, 1.0) == {NODE: None}
        assert desk.simulator.requests == []


def test_closing_ends_what_is_under_way(host: BmcHost, certificate: Certificate) -> None:
    with simulated(host, certificate, "generic", read_timeout_s=300.0) as desk:
        assert desk.simulator is not None
        pool = BmcPool({NODE: replace(desk.settings)})
        desk.simulator.inject("hang")
        assert pool.read([NODE], 0.5)[NODE].problem is BmcProblem.TIMEOUT
        mine = [one for one in threading.enumerate() if one.name.startswith("bmc-read")]
        pool.close()
        assert until(lambda: not any(one.is_alive() for one in mine[-1:]))


def test_work_that_begins_after_its_time_is_not_begun(host: BmcHost, certificate: Certificate) -> None:
    with simulated(host, certificate, "generic") as desk:
        pool = BmcPool({NODE: desk.settings, "n2": desk.settings}, threads=1)
        done: list[str] = []

        def work(bmc: RedfishBmc, deadline: Deadline) -> float:
            done.append(bmc.settings.node)
            time.sleep(max(0.0, deadline.left_s()) + 0.2)
            return deadline.left_s()

        assert list(pool.run([NODE, "n2"], work, 0.5).values()) == [None, None]
        pool.close()
        assert len(done) == 1


def test_who_checks_no_certificate_is_told_so_once(
    certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    with raw_desk(certificate, ca_file="", insecure=True) as (desk, _):
        for _ in range(3):
            assert desk.read().problem is BmcProblem.NONE
        said_so = [one for one in caplog.records if "not checked" in one.getMessage()]
        assert len(said_so) == 1
        assert NODE in said_so[0].getMessage()
