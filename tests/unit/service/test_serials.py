"""Serial numbers on record: which may be written, and the file that holds them."""

import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from slurm_lifecycle.core.machine import BmcProblem, MachineReading
from slurm_lifecycle.errors import ConfigError, TransientError
from slurm_lifecycle.ports import CommandResult
from slurm_lifecycle.service.bmc_record import HostSerials, Outcome, Row, ask_host, decide, is_serial
from slurm_lifecycle.service.serials import read_serials, write_serials


def reading(node: str, serial: str) -> MachineReading:
    return MachineReading(node, 0.0, serial=serial)


def judged(
    told: Mapping[str, str],
    recorded: Mapping[str, str] | None = None,
    *,
    replaced: bool = False,
    hosts: Mapping[str, str] | None = None,
) -> dict[str, Row]:
    """Rows of nodes whose BMC and host say the same, unless `hosts` tells other words."""
    said = {**told, **(hosts or {})}
    rows = decide(
        {node: reading(node, serial) for node, serial in told.items()},
        {node: HostSerials((serial,)) for node, serial in said.items()},
        recorded or {},
        replace_changed=replaced,
        unverified=False,
    )
    return {row.node: row for row in rows}


def test_exchanged_machines_may_swap_their_serials_at_once() -> None:
    rows = judged({"n1": "SB", "n2": "SA"}, {"n1": "SA", "n2": "SB"}, replaced=True)
    assert {row.outcome for row in rows.values()} == {Outcome.REPLACED}


def test_what_is_refused_keeps_its_record_and_so_refuses_others() -> None:
    """n3 disagrees and keeps SC; so n2 may not become SC and keeps SB; so n1 may not become SB."""
    rows = judged(
        {"n1": "SB", "n2": "SC", "n3": "SD"},
        {"n1": "SA", "n2": "SB", "n3": "SC"},
        replaced=True,
        hosts={"n3": "SX"},
    )
    assert {row.outcome for row in rows.values()} == {Outcome.REFUSED}
    assert "n3" in rows["n2"].why
    assert "n2" in rows["n1"].why


def test_two_bmcs_with_one_serial_are_both_refused() -> None:
    rows = judged({"n1": "SA", "n2": "SA", "n3": "SC"})
    assert [row.outcome for row in rows.values()] == [Outcome.REFUSED, Outcome.REFUSED, Outcome.NEW]


def test_a_machine_on_record_whose_node_disagrees_is_told() -> None:
    row = judged({"n1": "SA"}, {"n1": "SA"}, hosts={"n1": "SB"})["n1"]
    assert row.outcome is Outcome.REFUSED
    assert row.agrees is False


def test_a_bmc_that_cannot_be_read_says_nothing_about_its_serial() -> None:
    silent = MachineReading("n1", 0.0, problem=BmcProblem.TIMEOUT, detail="does not answer")
    (row,) = decide({"n1": silent}, {}, {"n1": "SA"}, replace_changed=True, unverified=True)
    assert (row.outcome, row.why) == (Outcome.UNREAD, "does not answer")


@pytest.mark.parametrize("text", ["", " ", "None", "DEFAULT STRING", "To Be Filled By O.E.M.", "0000", "0"])
def test_words_in_place_of_a_serial(text: str) -> None:
    assert not is_serial(text)
    assert is_serial("1663021000123")


class Way:
    """A way to a node that prints what it was given."""

    def __init__(self, stdout: str, code: int | None = 0) -> None:
        self.result = CommandResult(code, stdout, "")

    def run(self, node: str, argv: Sequence[str], timeout_s: float) -> CommandResult:
        assert node == "n1"
        assert argv[0] == "grep"
        assert timeout_s == 5.0
        if self.result.code is None:
            raise TransientError("run grep", "no route to host")
        return self.result


def test_a_node_tells_its_serials() -> None:
    told = "/sys/class/dmi/id/product_serial: A1 \n/sys/class/dmi/id/chassis_serial:None\n/etc/passwd:B2\n"
    assert ask_host(Way(told, 2), "n1", 5.0).values == ("A1",)
    assert "only root" in ask_host(Way("", 2), "n1", 5.0).problem
    assert ask_host(Way("", None), "n1", 5.0).problem == "no route to host"


def test_what_a_node_tells_is_bounded_and_plain() -> None:
    line = "/sys/class/dmi/id/product_serial:" + "\x1b[31mX" * 1000 + "\n"
    (serial,) = ask_host(Way(line * 1000), "n1", 5.0).values
    assert len(serial) <= 64
    assert serial.isprintable()


# ---------------------------------------------------------------- the file


def test_new_serials_stand_beside_those_of_others(tmp_path: Path) -> None:
    path = tmp_path / "serials.toml"
    write_serials(path, {"n2": "SB"}, {})
    write_serials(path, {"n1": "SA"}, {"n2": "SB"})
    assert read_serials(path) == {"n1": "SA", "n2": "SB"}
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["serials.toml"]


def test_words_of_any_kind_come_back_as_they_were(tmp_path: Path) -> None:
    strange = {"rack1.n1": 'A"\\[x]', "n-2": "Ünï ☃", "n3": "# = '"}
    write_serials(tmp_path / "serials.toml", strange, {})
    assert read_serials(tmp_path / "serials.toml") == strange


def test_what_changed_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "serials.toml"
    write_serials(path, {"n1": "SA"}, {})
    with pytest.raises(ConfigError, match="n1 was changed meanwhile"):
        write_serials(path, {"n1": "SB", "n2": "SC"}, {})
    assert read_serials(path) == {"n1": "SA"}


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with pytest.raises(ConfigError, match="writes it just now"):
        write_serials(tmp_path / "serials.toml", {"n1": "SA"}, {})
    os.close(folder)
    write_serials(tmp_path / "serials.toml", {"n1": "SA"}, {})


def test_mode_owner_and_link_of_the_file_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "serials.toml"
    write_serials(real, {"n1": "SA"}, {})
    real.chmod(0o640)
    link.symlink_to(real)
    write_serials(link, {"n2": "SB"}, {})
    assert link.is_symlink()
    assert read_serials(real) == {"n1": "SA", "n2": "SB"}
    assert real.stat().st_mode & 0o777 == 0o640


def test_where_it_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        write_serials(tmp_path / "none" / "serials.toml", {"n1": "SA"}, {})
