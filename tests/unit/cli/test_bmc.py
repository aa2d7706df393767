"""`bmc`: over emulated BMCs, with the client that the daemon has. What must never be there: a switch."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_lifecycle.cli.bmc_asking import longest_s
from slurm_lifecycle.sandbox.bmc.certificates import Certificate, make_certificate
from slurm_lifecycle.sandbox.bmc.chassis import VirtualChassis
from slurm_lifecycle.sandbox.bmc.host import BmcHost
from slurm_lifecycle.sandbox.bmc.simulator import BmcSimulator
from tests.unit.cli.conftest import Site

PASSWORD = "Emulated-1"
SERIALS = {"n1": "S-ONE", "n2": "S-TWO", "n3": "S-THREE"}
PROFILES = {"n1": "generic", "n2": "dgx_h100", "n3": "gb200"}


class Racks:
    """A site with three nodes, an emulated BMC each, and a way to reach the nodes themselves."""

    def __init__(self, site: Site, host: BmcHost, certificate: Certificate) -> None:
        self.site, self.certificate = site, certificate
        self.chassis = {node: VirtualChassis() for node in SERIALS}
        self.bmcs = {
            node: BmcSimulator(PROFILES[node], self.chassis[node], serial=serial, password=PASSWORD)
            for node, serial in SERIALS.items()
        }
        self.addresses = {node: host.add(one) for node, one in self.bmcs.items()}
        self.file, self.record = site.folder / "bmc.toml", site.folder / "serials.toml"
        self.secret = site.folder / "secret.toml"
        self.password(PASSWORD)
        self.groups()
        # What `ssh` is at a site: it prints what the node itself says.
        way = site.folder / "way"
        way.write_text(f'#!/bin/sh\n[ -f {site.folder}/$1.dmi ] || exit 255\ncat "{site.folder}/$1.dmi"\n')
        way.chmod(0o755)
        text = site.config.read_text().replace('argv = ["true", "{node}"]', f'argv = ["{way}", "{{node}}"]')
        text += f'[bmc]\nfile = "{self.file}"\nserials = "{self.record}"\n'
        site.config.write_text(text)
        for node, serial in SERIALS.items():
            self.node_says(node, serial)

    def groups(self, **changes: str) -> None:
        """Name the BMCs; a change is a line that every group has instead of its `ca_file`, or a profile."""
        trust = changes.get("trust", f'ca_file = "{self.certificate.ca_file}"')
        self.file.write_text(
            "".join(
                f'[[group]]\nnodes = "{node}"\naddress = "{address}"\n'
                f'profile = "{changes.get(node, PROFILES[node])}"\n{trust}\n'
                f'credentials_file = "{self.secret}"\n'
                for node, address in self.addresses.items()
            )
        )

    def password(self, password: str) -> None:
        self.secret.write_text(f'username = "admin"\npassword = "{password}"\n')
        self.secret.chmod(0o600)

    def node_says(self, node: str, serial: str) -> None:
        (self.site.folder / f"{node}.dmi").write_text(
            f"/sys/class/dmi/id/product_serial:{serial}\n/sys/class/dmi/id/board_serial:Default string\n"
        )

    def on_record(self, **serials: str) -> None:
        self.record.write_text("[serial]\n" + "".join(f'{n} = "{s}"\n' for n, s in serials.items()))

    def recorded(self) -> dict[str, str]:
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return dict(line.replace('"', "").split(" = ") for line in lines if " = " in line)

    def untouched(self) -> bool:
        """No machine was done anything to, and no BMC was asked to change more than a session."""
        asked = [one for bmc in self.bmcs.values() for one in bmc.requests if one.method != "GET"]
        machines = [call for chassis in self.chassis.values() for call in chassis.calls]
        return not machines and all("SessionService" in one.path for one in asked)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("bmc"))


@pytest.fixture(scope="module")
def host(certificate: Certificate) -> Iterator[BmcHost]:
    with BmcHost(certificate) as running:
        yield running


@pytest.fixture
def racks(site: Site, host: BmcHost, certificate: Certificate) -> Iterator[Racks]:
    made = Racks(site, host, certificate)
    yield made
    assert made.untouched()


# ---------------------------------------------------------------- record


def test_machines_go_on_record_once_bmc_and_node_agree(racks: Racks) -> None:
    result = racks.site.run("bmc", "record", "--all", "--yes")
    assert result.exit_code == 0, result.output
    assert racks.recorded() == SERIALS
    assert result.output.splitlines()[1].split() == ["n1", "S-ONE", "S-ONE", "yes", "new"]
    again = racks.site.run("bmc", "record", "--all", "--yes")
    assert again.exit_code == 0
    assert "nothing was written" in again.output
    assert racks.site.run("bmc", "check").output == "3 of 3 BMCs are fine\n"


def test_nothing_is_written_before_a_person_said_yes(racks: Racks) -> None:
    refused = racks.site.run("bmc", "record", "n1", stdin="n\n")
    assert "Write 1 of them" in refused.output
    assert not racks.record.exists()
    racks.site.run("bmc", "record", "n1", stdin="")
    assert not racks.record.exists()
    racks.site.run("bmc", "record", "n1", stdin="y\n")
    assert racks.recorded() == {"n1": "S-ONE"}


def test_a_bmc_of_another_machine_is_refused_and_the_others_are_taken(racks: Racks) -> None:
    racks.node_says("n2", "S-OTHER")
    result = racks.site.run("bmc", "record", "--all", "--yes")
    assert result.exit_code == 1
    assert "n2: the node itself says S-OTHER: the BMC is another machine's" in result.output
    assert racks.recorded() == {"n1": "S-ONE", "n3": "S-THREE"}


def test_a_node_that_cannot_be_asked_needs_a_word_more(racks: Racks) -> None:
    (racks.site.folder / "n1.dmi").unlink()
    result = racks.site.run("bmc", "record", "n1", "--yes")
    assert result.exit_code == 1
    assert "--unverified" in result.output
    assert not racks.record.exists()
    assert racks.site.run("bmc", "record", "n1", "--yes", "--unverified").exit_code == 0
    assert racks.recorded() == {"n1": "S-ONE"}


def test_unverified_is_no_way_around_a_node_that_disagrees(racks: Racks) -> None:
    racks.node_says("n1", "S-OTHER")
    assert racks.site.run("bmc", "record", "n1", "--yes", "--unverified").exit_code == 1
    assert not racks.record.exists()


def test_a_serial_that_changed_needs_its_nodes_name_and_replace(racks: Racks) -> None:
    racks.on_record(n1="S-OLD", gone="S-GONE")
    for words in (["--all"], ["n1"]):
        result = racks.site.run("bmc", "record", *words, "--yes")
        assert result.exit_code == 1
        assert "on record is S-OLD" in result.output
        assert racks.recorded()["n1"] == "S-OLD"
    for words in (["--all", "--replace"], ["n[1-2]", "--replace"], ["n1,n2", "--replace"]):
        assert racks.site.run("bmc", "record", *words, "--yes").exit_code == 2
    assert racks.site.run("bmc", "record", "n1", "--replace", "--yes").exit_code == 0
    assert racks.recorded() == {"gone": "S-GONE", "n1": "S-ONE", "n2": "S-TWO", "n3": "S-THREE"}


def test_two_nodes_are_never_one_machine(racks: Racks) -> None:
    racks.on_record(former="S-ONE")
    result = racks.site.run("bmc", "record", "n1", "--yes")
    assert result.exit_code == 1
    assert "the same as of former" in result.output
    assert racks.recorded() == {"former": "S-ONE"}


@pytest.mark.parametrize("serial", ["", "To be filled by O.E.M.", "00000000"])
def test_a_word_in_place_of_a_serial_number_is_none(racks: Racks, serial: str) -> None:
    racks.bmcs["n1"].serial = serial
    racks.node_says("n1", serial)
    result = racks.site.run("bmc", "record", "n1", "--yes", "--unverified")
    assert result.exit_code == 1
    assert not racks.record.exists()


def test_recording_as_json(racks: Racks) -> None:
    assert racks.site.run("bmc", "record", "--all", "--json").exit_code == 2
    told = json.loads(racks.site.run("bmc", "record", "--all", "--json", "--yes").output)
    assert told["written"] == ["n1", "n2", "n3"]
    assert told["rows"][0]["agrees"] is True


# ---------------------------------------------------------------- check


@pytest.mark.parametrize(
    ("fault", "parameters", "says"),
    [
        ("auth-401", {}, "refuses the name or the password"),
        ("nonsense", {"form": "html"}, "answers nonsense"),
        ("wrong-serial", {}, "on record is 'S-ONE'"),
        ("no-serial", {}, "tells no serial number"),
        ("session-limit", {}, "answers 503"),
    ],
)
def test_what_is_wrong_with_a_bmc_is_one_line(
    racks: Racks, fault: str, parameters: dict[str, Any], says: str
) -> None:
    racks.on_record(**SERIALS)
    racks.bmcs["n1"].inject(fault, **parameters)
    result = racks.site.run("bmc", "check")
    assert result.exit_code == 1
    first, last = result.output.splitlines()
    assert first.startswith("n1: ")
    assert says in first
    assert last == "2 of 3 BMCs are fine"


def test_a_wrong_password_is_tried_once_by_each_command(racks: Racks) -> None:
    racks.on_record(**SERIALS)
    racks.password("not this one")
    result = racks.site.run("bmc", "check", "n1")
    assert result.exit_code == 1
    assert "correct the credentials" in result.output
    assert "not this one" not in result.output
    logins = [one for one in racks.bmcs["n1"].requests if one.method == "POST"]
    assert len(logins) == 1


def test_a_certificate_by_somebody_else_is_one_line(racks: Racks, tmp_path: Path) -> None:
    racks.on_record(**SERIALS)
    other = make_certificate(tmp_path / "other")
    racks.groups(trust=f'ca_file = "{other.ca_file}"')
    result = racks.site.run("bmc", "check", "n1")
    assert result.exit_code == 1
    assert "not by an authority in" in result.output
    racks.groups(trust=f'fingerprint = "{other.fingerprint_sha256}"')
    assert "whose fingerprint is pinned" in racks.site.run("bmc", "check", "n1").output
    racks.groups(trust=f'fingerprint = "{racks.certificate.fingerprint_sha256}"')
    assert racks.site.run("bmc", "check", "n1").exit_code == 0
    racks.groups(trust="insecure = true")
    assert "no certificate is checked (insecure = true) of n1" in racks.site.run("bmc", "check", "n1").output


def test_the_wrong_profile_and_a_missing_record_are_told(racks: Racks) -> None:
    racks.on_record(n1="S-ONE", n3="S-THREE")
    racks.groups(n1="dgx_h100")
    output = racks.site.run("bmc", "check").output
    assert "is profile 'dgx_h100' the right one?" in output
    assert "n2: no serial number of n2 is on record: `slurm-lifecycle bmc record n2`" in output


def test_nobody_answers_is_3(racks: Racks) -> None:
    racks.on_record(**SERIALS)
    racks.addresses = {"n1": "https://127.0.0.1:9"}
    racks.groups()
    result = racks.site.run("bmc", "check")
    assert result.exit_code == 3
    assert "cannot be reached" in result.output
    assert racks.site.run("bmc", "show", "n1").exit_code == 3
    assert racks.site.run("bmc", "record", "n1", "--yes").exit_code == 3


# ---------------------------------------------------------------- list, show


def test_list_tells_power_and_problems(racks: Racks) -> None:
    racks.on_record(**SERIALS)
    racks.bmcs["n2"].inject("auth-401")
    lines = racks.site.run("bmc", "list").output.splitlines()
    assert lines[0].split() == ["NODE", "BMC", "PROFILE", "POWER", "SERIAL", "PROBLEM"]
    assert lines[1].split()[2:] == ["generic", "on", "S-ONE"]
    only = racks.site.run("bmc", "list", "--problems", "--json")
    assert only.exit_code == 1
    assert [(one["node"], one["problem"]) for one in json.loads(only.output)] == [("n2", "auth")]
    assert racks.site.run("bmc", "list", "n[1,3]", "--problems").output == "none\n"


def test_show_holds_the_serial_against_the_record(racks: Racks) -> None:
    racks.on_record(n1="S-ONE", n2="S-OTHER")
    good = racks.site.run("bmc", "show", "n1")
    assert good.exit_code == 0
    assert "power     on" in good.output
    assert "S-ONE (as on record)" in good.output
    wrong = racks.site.run("bmc", "show", "n2")
    assert wrong.exit_code == 1
    assert "S-TWO, but on record is S-OTHER" in wrong.output
    assert PASSWORD not in good.output
    told = json.loads(racks.site.run("bmc", "show", "n3", "--json").output)
    assert (told["power"], told["recorded_serial"], told["findings"]) == ("on", "", [])


# ---------------------------------------------------------------- wrong use


@pytest.mark.parametrize(
    "words",
    [
        ["record"],
        ["record", "n1", "--all"],
        ["check", "n9"],
        ["check", "n[1-"],
        ["show", "n9"],
        ["show", "n[1-2]"],
        ["on", "n1"],
    ],
)
def test_wrong_use_is_2(racks: Racks, words: list[str]) -> None:
    assert racks.site.run("bmc", *words).exit_code == 2


def test_without_bmcs_each_command_says_where_to_name_them(site: Site) -> None:
    for words in (["list"], ["check"], ["show", "n1"], ["record", "--all"]):
        result = site.run("bmc", *words)
        assert result.exit_code == 2
        assert "set [bmc] file" in result.output


def test_the_configuration_is_shown_without_the_way_to_a_password(racks: Racks) -> None:
    for words in (["config", "show"], ["config", "show", "--json"]):
        result = racks.site.run(*words)
        assert result.exit_code == 0
        assert f"file {racks.secret}" in result.output
        assert PASSWORD not in result.output
        assert "function" not in result.output


def test_a_password_that_others_may_read_is_not_used(racks: Racks) -> None:
    racks.on_record(**SERIALS)
    racks.secret.chmod(0o644)
    result = racks.site.run("bmc", "check", "n1")
    assert result.exit_code == 1
    assert f"chmod 600 {racks.secret}" in result.output
    assert not racks.bmcs["n1"].requests


def test_more_bmcs_are_waited_for_longer() -> None:
    assert longest_s(1, 32) == 120.0
    assert longest_s(1000, 32) > longest_s(500, 32) > 120.0


def test_sessions_are_closed_and_no_thread_is_left(racks: Racks) -> None:
    racks.on_record(**SERIALS)
    racks.site.run("bmc", "check")
    methods = [one.method for one in racks.bmcs["n1"].requests if "Sessions" in one.path]
    assert methods == ["POST", "DELETE"]
    ours = [one for one in threading.enumerate() if one.name.startswith(("bmc-read", "bmc-send", "bmc-reap"))]
    for thread in ours:
        thread.join(30.0)
    assert not [one.name for one in ours if one.is_alive()]
