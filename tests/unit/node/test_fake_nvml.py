"""The stand-in driver library, seen through the real nvidia-ml-py in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_lifecycle.sandbox.fake_nvml import FakeNvmlError, FakeNvmlState, build

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

_READ_ALL = """
import json, pynvml as n
out = {}
def call(name, function, *arguments):
    try:
        value = function(*arguments)
    except n.NVMLError as error:
        out[name] = {"error": error.value}
        return None
    out[name] = value if isinstance(value, (int, str, list, tuple)) else str(value)
    return value
call("init", n.nvmlInit)
call("count", n.nvmlDeviceGetCount)
handle = call("handle", n.nvmlDeviceGetHandleByIndex, 1)
if handle is not None:
    out["handle"] = "ok"
    call("uuid", n.nvmlDeviceGetUUID, handle)
    call("serial", n.nvmlDeviceGetSerial, handle)
    call("name", n.nvmlDeviceGetName, handle)
    call("ecc", n.nvmlDeviceGetTotalEccErrors, handle, 1, 0)
    call("ecc_aggregate", n.nvmlDeviceGetTotalEccErrors, handle, 1, 1)
    call("remap", n.nvmlDeviceGetRemappedRows, handle)
    call("inforom", n.nvmlDeviceValidateInforom, handle)
    call("temperature", n.nvmlDeviceGetTemperature, handle, 0)
    call("processes", n.nvmlDeviceGetComputeRunningProcesses, handle)
    pci = call("pci", n.nvmlDeviceGetPciInfo, handle)
    if pci is not None:
        bus = pci.busId.decode() if isinstance(pci.busId, bytes) else pci.busId
        out["pci"] = [bus, pci.bus]
        out["by_bus"] = n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByPciBusId(pci.busId))
    fields = call("fields", n.nvmlDeviceGetFieldValues, handle, [230, 83])
    if fields is not None:
        out["fields"] = [[f.nvmlReturn, f.value.uiVal] for f in fields]
    status = n.c_nvmlEccSramErrorStatus_v1_t()
    if call("sram", n.nvmlDeviceGetSramEccErrorStatus, handle, n.byref(status)) is not None:
        out["sram"] = status.bThresholdExceeded
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def library_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml")).parent


@pytest.fixture
def state(tmp_path: Path) -> FakeNvmlState:
    return FakeNvmlState(tmp_path / "gpus.state")


def _read_all(state: FakeNvmlState, library_dir: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _READ_ALL],
        env=state.environment(library_dir),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_healthy_without_a_state_file(state: FakeNvmlState, library_dir: Path) -> None:
    seen = _read_all(state, library_dir)
    assert seen["count"] == 8
    assert seen["pci"] == ["00000000:20:00.0", 0x20]
    assert seen["by_bus"] == seen["uuid"]
    assert seen["fields"] == [[0, 0], [3, 0]]
    assert (seen["ecc"], seen["remap"], seen["sram"], seen["temperature"]) == (0, [0, 0, 0, 0], 0, 35)


def test_faults_appear_at_the_right_gpu(state: FakeNvmlState, library_dir: Path) -> None:
    state.write({"gpus": 4, "name": "NVIDIA A100"})
    state.set_gpu(1, ecc_unc_volatile=3, ecc_unc_aggregate=9, remap_pending=1, recovery_action=2)
    state.set_gpu(1, sram_threshold=1, inforom=1, uuid="GPU-x", serial="77", ret_temperature=4)
    seen = _read_all(state, library_dir)
    assert (seen["count"], seen["name"], seen["uuid"], seen["serial"]) == (4, "NVIDIA A100", "GPU-x", "77")
    assert (seen["ecc"], seen["ecc_aggregate"], seen["remap"]) == (3, 9, [0, 0, 1, 0])
    assert seen["fields"][0] == [0, 2]
    assert seen["sram"] == 1
    assert seen["inforom"] == {"error": 14}
    assert seen["temperature"] == {"error": 4}


@pytest.mark.parametrize(
    ("field", "call", "code"),
    [("lost", "handle", 15), ("reset_required", "ecc", 16), ("ret_fields", "fields", 3)],
)
def test_return_codes(state: FakeNvmlState, library_dir: Path, field: str, call: str, code: int) -> None:
    state.set_gpu(1, **{field: 3 if field.startswith("ret_") else 1})
    assert _read_all(state, library_dir)[call] == {"error": code}


def test_absent_gpu_shifts_the_others(state: FakeNvmlState, library_dir: Path) -> None:
    healthy = _read_all(state, library_dir)
    state.set_gpu(0, absent=1)
    shifted = _read_all(state, library_dir)
    assert shifted["count"] == 7
    assert shifted["uuid"] != healthy["uuid"]
    assert shifted["pci"][1] == 0x30


def test_init_code(state: FakeNvmlState, library_dir: Path) -> None:
    state.write({"init": 18})
    assert _read_all(state, library_dir)["init"] == {"error": 18}


def test_hang_stops_calls_after_init(state: FakeNvmlState, library_dir: Path) -> None:
    state.write({"hang": 1})
    command = [
        sys.executable,
        "-c",
        "import pynvml as n; n.nvmlInit(); print('in', flush=True); n.nvmlDeviceGetCount()",
    ]
    child = subprocess.Popen(command, env=state.environment(library_dir), stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"in\n"
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(timeout=0.5)
    child.kill()
    child.wait(timeout=5)


def test_update_removes_and_reset_keeps_identity(state: FakeNvmlState) -> None:
    state.write({"gpus": 2, "hang": 1})
    state.set_gpu(0, lost=1, uuid="GPU-a", ret_uuid=3)
    assert state.update({"hang": None}) == {
        "gpus": "2",
        "gpu.0.lost": "1",
        "gpu.0.uuid": "GPU-a",
        "gpu.0.ret.uuid": "3",
    }
    state.reset()
    assert state.read() == {"gpus": "2", "gpu.0.uuid": "GPU-a"}


def test_newline_in_a_value_is_refused(state: FakeNvmlState) -> None:
    with pytest.raises(FakeNvmlError, match="newline"):
        state.write({"name": "a\nb"})
