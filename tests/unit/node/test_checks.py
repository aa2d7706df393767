"""Each check with a fixture that fails it and one that passes it, by the real nvidia-ml-py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_lifecycle.node.checks import host, nvml
from slurm_lifecycle.node.checks.base import GpuContext, Judgement
from slurm_lifecycle.node.checks.gpu import GPU_CHECKS
from slurm_lifecycle.node.checks.nvml import Failed, Gpu, Snapshot
from slurm_lifecycle.node.inventory import GpuIdentity, Inventory, load_inventory, save_inventory
from slurm_lifecycle.node.monitor import count_gpus_on_bus

from .conftest import Node


def _report(node: Node) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((node.run_dir / "report.json").read_text(encoding="utf-8"))
    return report


def _found(node: Node) -> list[tuple[str, str, str]]:
    """Check, code and component of each finding after one round."""
    node.once()
    return [(f["check"], f["code"], f["component"]) for f in _report(node)["findings"]]


FAULTS = [
    ({"gpu.2.lost": 1}, "gpu_lost", "GPU_LOST", "gpu2"),
    ({"gpu.2.reset_required": 1}, "gpu_lost", "GPU_RESET_REQ", "gpu2"),
    ({"gpu.2.ret.ecc": 15}, "gpu_lost", "GPU_LOST", "gpu2"),
    ({"gpu.2.recovery_action": 1}, "gpu_recovery", "RECOVERY_RESET", "gpu2"),
    ({"gpu.2.recovery_action": 2}, "gpu_recovery", "RECOVERY_REBOOT", "gpu2"),
    ({"gpu.2.recovery_action": 3}, "gpu_recovery", "RECOVERY_DRAIN_P2P", "gpu2"),
    ({"gpu.2.recovery_action": 4}, "gpu_recovery", "RECOVERY_RESET", "gpu2"),
    ({"gpu.2.recovery_action": 5}, "gpu_recovery", "RECOVERY_UNKNOWN", "gpu2"),
    ({"gpu.2.recovery_action": 7}, "gpu_recovery", "RECOVERY_REBOOT", "gpu2"),
    ({"gpu.2.recovery_action": 99}, "gpu_recovery", "RECOVERY_UNKNOWN", "gpu2"),
    ({"gpu.2.ecc_unc_volatile": 1}, "gpu_ecc", "ECC_UNCORRECTED", "gpu2"),
    ({"gpu.2.sram_threshold": 1}, "gpu_sram", "SRAM_THRESHOLD", "gpu2"),
    ({"gpu.2.remap_pending": 1}, "gpu_remap", "REMAP_PENDING", "gpu2"),
    ({"gpu.2.remap_failure": 1}, "gpu_remap", "REMAP_FAILURE", "gpu2"),
    ({"gpu.2.inforom": 1}, "gpu_inforom", "INFOROM", "gpu2"),
    ({"gpus": 3}, "gpu_count", "GPU_COUNT", "gpus"),
    ({"init": 18}, "gpu_driver", "DRIVER_MISMATCH", "driver"),
    ({"init": 9}, "gpu_driver", "DRIVER_DOWN", "driver"),
    ({"init": 999}, "gpu_driver", "DRIVER_DOWN", "driver"),
    ({"init": 11}, "gpu_driver", "GPU_IRQ", "driver"),
    ({"init": 4}, "gpu_driver", "CHECK_FAILED", "driver"),
    ({"init": 12}, "gpu_driver", "CHECK_FAILED", "driver"),
    ({"gpu.2.ret.sram": 4}, "gpu_sram", "CHECK_FAILED", "gpu2"),
]


@pytest.mark.parametrize(("state", "check", "code", "component"), FAULTS)
def test_check_fails(node: Node, state: dict[str, int], check: str, code: str, component: str) -> None:
    node.gpus.update(state)
    assert _found(node) == [(check, code, component)]


def test_every_gpu_code_has_a_fixture() -> None:
    codes = {code for check in GPU_CHECKS for code in check.codes}
    assert codes == {code for _, _, code, _ in FAULTS}


# What a healthy node of any age may answer.
@pytest.mark.parametrize(
    "state",
    [
        {},
        {"gpu.1.ecc_unc_aggregate": 7, "gpu.1.ecc_corr_volatile": 900},
        {"gpu.1.remap_corr": 3, "gpu.1.remap_unc": 1},
        {"ret.ecc": 3, "ret.remap": 3, "ret.sram": 3, "ret.inforom": 3, "ret.temperature": 3},
        {"ret.sram": 13, "ret.inforom": 13, "ret.fields": 13, "ret.remap": 13},
        {"ret.recovery": 3, "ret.serial": 3},
        {"ret.recovery": 2, "gpu.1.recovery_action": 2},
    ],
)
def test_healthy_and_not_applicable(node: Node, state: dict[str, int]) -> None:
    node.gpus.update(state)
    done = node.once()
    assert (done.returncode, done.stderr) == (0, "")
    assert node.verdict() == ("ok", "-", "all checks passed")
    assert len(_report(node)["gpus"]) == 4


def test_a_gpu_that_vanished_is_named_from_the_inventory_of_the_boot(node: Node) -> None:
    node.once()
    node.gpus.set_gpu(1, absent=1)
    assert _found(node) == [("gpu_count", "GPU_COUNT", "gpu1")]
    node.gpus.set_gpu(2, remap_failure=1)
    assert ("gpu_remap", "REMAP_FAILURE", "gpu2") in _found(node)
    assert [gpu["answers"] for gpu in _report(node)["gpus"]] == [True, False, True, True]


@pytest.mark.parametrize("field", ["serial", "uuid", "name", "bus"])
def test_an_answer_that_is_no_text_blinds_no_other_check(node: Node, field: str) -> None:
    node.gpus.path.write_bytes(f"gpus=4\ngpu.2.lost=1\ngpu.0.{field}=".encode() + b"\xff\xfe:00\n")
    assert ("gpu_lost", "GPU_LOST", "gpu2") in _found(node)
    assert all(code != "CHECK_FAILED" for _, code, _ in _found(node))


def test_a_pynvml_without_a_call_asks_the_others() -> None:
    class Old:
        class NVMLError(Exception):
            value = 1

        @staticmethod
        def nvmlDeviceGetHandleByIndex(index: int) -> int:
            return index

        @staticmethod
        def nvmlDeviceGetSerial(handle: int) -> str:
            return f"s{handle}"

    answers = dict(nvml._read_gpu(Old, 3, deep=True))
    assert answers.pop("handle") == 0
    assert answers.pop("serial") == "s3"
    assert set(answers.values()) == {Failed(nvml.FUNCTION_NOT_FOUND)}


def test_a_lost_gpu_keeps_its_other_findings(node: Node) -> None:
    node.gpus.set_gpu(2, remap_failure=1)
    node.once()
    node.gpus.set_gpu(2, remap_failure=None, lost=1)
    assert {code for _, code, _ in _found(node)} == {"REMAP_FAILURE", "GPU_LOST"}
    node.gpus.set_gpu(2, lost=None)
    assert _found(node) == []


def test_count_is_not_applicable_without_a_number(node: Node) -> None:
    node.configure("channel=none", "")
    node.gpus.write({"gpus": 1})
    assert _found(node) == []


def test_a_node_without_gpus_is_well(node: Node) -> None:
    node.configure("channel=none", "")
    for code in (9, 12):
        node.gpus.write({"init": code})
        assert _found(node) == []
    node.configure("channel=none", "expected_gpus=0")
    node.gpus.write({"init": 18})
    assert _found(node) == []


def test_disabled_and_observed(node: Node) -> None:
    node.gpus.set_gpu(2, lost=1, remap_failure=1)
    node.gpus.set_gpu(1, remap_failure=1)
    node.configure("channel=none", "disable=gpu_lost\nobserve=gpu_remap")
    assert node.once().returncode == 0
    assert node.verdict()[:2] == ("warn", "REMAP_FAILURE")


def test_a_hung_driver_is_a_finding_and_the_rest_goes_on(node: Node) -> None:
    node.gpus.write({"hang": 1})
    node.configure("channel=none\nprobe_timeout_s=0.5", "expected_gpus=4\nmin_free_percent=0")
    node.log("NVRM: Xid (PCI:0000:30:00): 79, GPU has fallen off the bus.")
    assert node.once().returncode == 1
    found = {(f["code"], f["component"]) for f in _report(node)["findings"]}
    assert found == {("PROBE_HUNG", "nvml"), ("XID79", "0000:30:00")}


def test_a_crash_of_the_library_is_could_not_run(node: Node) -> None:
    library = node.root / "lib"
    library.mkdir()
    source = library / "crash.c"
    source.write_text("int nvmlInitWithFlags(unsigned f) { (void)f; __builtin_trap(); }", encoding="ascii")
    import subprocess

    command = ["gcc", "-shared", "-fPIC", "-o", str(library / "libnvidia-ml.so.1"), str(source)]
    subprocess.run(command, check=True, timeout=60)
    node.library_dir = library
    assert _found(node) == [("probe.nvml", "CHECK_FAILED", "nvml")]


def test_a_check_that_is_switched_off_later_takes_its_findings_along(node: Node) -> None:
    node.gpus.set_gpu(2, lost=1)
    node.log("NVRM: Xid (PCI:0000:20:00): 79, GPU has fallen off the bus.")
    assert len(_found(node)) == 2
    node.configure("channel=none", "disable=gpu_lost\nobserve=kernel_log")
    assert _found(node) == [("kernel_log", "XID79", "gpu1")]
    assert node.verdict()[0] == "warn"


def test_kernel_log_that_cannot_be_read_warns(node: Node) -> None:
    node.kmsg.unlink()
    assert _found(node) == [("probe.kernel-log", "CHECK_FAILED", "kernel-log")]
    node.kmsg.write_text("", encoding="utf-8")
    assert _found(node) == []


# ---------------------------------------------------------------- pure parts


def _context(*gpus: Gpu, complete: bool = True) -> GpuContext:
    return GpuContext(Snapshot(0, "x", len(gpus), gpus, complete), Inventory(), 8)


@pytest.mark.parametrize("check", GPU_CHECKS, ids=lambda check: check.check_id)
def test_a_probe_that_did_not_finish_changes_nothing(check: Any) -> None:
    judgement: Judgement = check.judge(GpuContext(Snapshot(), Inventory(), 8))
    assert judgement is None
    half = check.judge(_context(Gpu(0, {"handle": Failed(15)}), complete=False))
    assert half is None or half.signs == ()


@given(
    st.lists(
        st.one_of(st.text(), st.sampled_from(['{"init": 0}', '{"gpu": 1}', '{"count": [1]}', "[]", "1"]))
    )
)
def test_any_probe_output_is_read(lines: list[str]) -> None:
    assert isinstance(nvml.parse_snapshot("\n".join(lines)), Snapshot)
    assert isinstance(host.parse_filesystems("\n".join(lines)), host.FileSystems)


def test_cut_output_is_not_complete() -> None:
    output = '{"init": 0, "driver": "1"}\n{"count": 2}\n{"gpu": 0, "answers": {"handle": {"error": 15}}}\n'
    output += '{"gpu": 1, "ans'
    snapshot = nvml.parse_snapshot(output)
    assert (snapshot.count, len(snapshot.gpus), snapshot.complete) == (2, 1, False)


def _fs(**values: Any) -> host.FileSystems:
    defaults: dict[str, Any] = {
        "path": "/x",
        "blocks": 100,
        "blocks_free": 50,
        "inodes": 100,
        "inodes_free": 50,
    }
    return host.FileSystems((host.FileSystem(**{**defaults, **values}),))


@pytest.mark.parametrize(
    ("look", "code"),
    [
        (_fs(), ""),
        (_fs(blocks_free=5), ""),
        (_fs(blocks_free=4), "FS_FULL"),
        (_fs(inodes_free=4), "FS_FULL"),
        (_fs(inodes=0, inodes_free=0), ""),
        (_fs(blocks=0, blocks_free=0), ""),
        (_fs(error="gone"), "CHECK_FAILED"),
    ],
)
def test_space(look: host.FileSystems, code: str) -> None:
    judged = host.judge_space(look, 5.0)
    assert judged is not None
    assert [sign.code for sign in judged.signs] == ([code] if code else [])


def test_read_only() -> None:
    judged, fine = host.judge_read_only(_fs(read_only=True)), host.judge_read_only(_fs())
    assert judged is not None
    assert [sign.code for sign in judged.signs] == ["FS_READONLY"]
    assert fine is not None
    assert fine.signs == ()


def test_filesystems_of_this_machine(tmp_path: Path) -> None:
    output = "\n".join(host.read_filesystems([str(tmp_path), "/nonexistent"]))
    look = host.parse_filesystems(output)
    assert [bool(fs.error) for fs in look.seen] == [False, True]
    assert look.in_progress == ""
    assert look.seen[0].blocks > 0
    assert host.parse_filesystems('{"next": "/data"}').in_progress == "/data"


_MOUNTS = "\n".join(
    [
        "rootfs / ext4 rw 0 0",
        "srv:/d /data nfs4 rw 0 0",
        "/dev/b /data/local xfs rw 0 0",
        "l /my\\040scratch lustre rw 0 0",
    ]
)


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/", False),
        ("/tmp", False),
        ("/data", True),
        ("/data/x", True),
        ("/data/local/y", False),
        ("/database", False),
    ],
)
def test_a_shared_file_system_is_not_this_nodes_fault(path: str, shared: bool) -> None:
    assert host.is_shared(path, _MOUNTS) is shared


def test_unknown_mount_counts_as_shared() -> None:
    assert host.is_shared("/x", "")


def test_gpus_on_the_bus(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("a", "0x10de", "0x030200"),
        ("b", "0x10de", "0x068000"),
        ("c", "0x8086", "0x030000"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n", encoding="ascii")
        (tmp_path / name / "class").write_text(kind + "\n", encoding="ascii")
    (tmp_path / "d").mkdir()
    assert count_gpus_on_bus(str(tmp_path)) == 1
    assert count_gpus_on_bus(str(tmp_path / "none")) == 0


def test_inventory_of_another_boot_or_damaged_is_none(tmp_path: Path) -> None:
    inventory = Inventory((GpuIdentity(0, "0000:10:00", "u", "s", "n"),))
    save_inventory(str(tmp_path), "b0", inventory)
    assert load_inventory(str(tmp_path), "b0") == inventory
    assert load_inventory(str(tmp_path), "b1") == Inventory()
    (tmp_path / "inventory.json").write_text('{"boot_id": "b0", "gpus": [{"index": "x"}]}', encoding="ascii")
    assert load_inventory(str(tmp_path), "b0") == Inventory()


def test_inventory_never_gives_an_index_twice() -> None:
    def gpu(index: int, bus: str) -> Gpu:
        return Gpu(index, {"bus": bus})

    first = Inventory().merged(Snapshot(0, "", 2, (gpu(0, "a"), gpu(1, "b")), True))
    later = first.merged(Snapshot(0, "", 2, (gpu(0, "b"), gpu(1, "c")), True))
    assert [(one.index, one.device) for one in later.gpus] == [(0, "a"), (1, "b"), (2, "c")]
