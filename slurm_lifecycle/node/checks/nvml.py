"""The driver probe: asks NVML once for everything that the GPU checks need. The only home of pynvml.

Runs in a child process (a driver call may never return), and yields lines of JSON as it goes, so that what
was read before a hang is not lost. Each value is either what the call returned or the code of its error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from slurm_lifecycle.node.checks.xid import normal_bus_id

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND = 3, 4, 13
DRIVER_NOT_LOADED, IRQ_ISSUE, LIBRARY_NOT_FOUND, MISMATCH = 9, 11, 12, 18
CORRUPTED_INFOROM, GPU_IS_LOST, RESET_REQUIRED = 14, 15, 16
UNREADABLE = 999
"""NVML's own "unknown error", and an answer that cannot be read, such as a serial that is no text."""

NO_PYNVML = -1
"""Not a code of NVML: the Python package is not installed."""

_FIELD_RECOVERY_ACTION = 230
_UNCORRECTED, _VOLATILE, _AGGREGATE, _TEMPERATURE_GPU = 1, 0, 1, 0

Value = Union[int, str, List[int]]


@dataclass(frozen=True)
class Failed:
    """A call that returned an error code instead of a value."""

    code: int


Answer = Union[Value, Failed]


@dataclass(frozen=True)
class Gpu:
    """What NVML said of one GPU, by name of the question; questions that were not asked are missing."""

    index: int
    answers: Mapping[str, Answer]

    def number(self, question: str) -> Optional[int]:
        """The answer where it is a number."""
        value = self.answers.get(question)
        return value if isinstance(value, int) else None

    def error(self, question: str) -> Optional[int]:
        """The error code where the call failed."""
        value = self.answers.get(question)
        return value.code if isinstance(value, Failed) else None

    def text(self, question: str) -> str:
        """The answer where it is a text, else empty."""
        value = self.answers.get(question)
        return value if isinstance(value, str) else ""

    @property
    def device(self) -> str:
        """PCI bus id in the normal form, empty where the GPU did not answer."""
        return self.text("bus")


@dataclass(frozen=True)
class Snapshot:
    """One look at the driver.

    Attributes:
        init: code of the initialisation.
        count: GPUs that the driver lists, or the error; None when it did not come so far.
        complete: everything that was asked for was answered, with or without error.
    """

    init: Optional[int] = None
    driver: str = ""
    count: Optional[Answer] = None
    gpus: Tuple[Gpu, ...] = ()
    complete: bool = False


def read_driver(deep: bool) -> Iterator[str]:
    """Ask the driver; the child's work.

    Args:
        deep: also what is slow or wears the part, such as reading the whole InfoROM.

    Yields:
        Lines of JSON for `parse_snapshot`.
    """
    try:
        import pynvml
    except ImportError:
        yield json.dumps({"init": NO_PYNVML})
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield json.dumps({"init": int(error.value)})
        return
    yield json.dumps({"init": 0, "driver": _encode(_call(pynvml, "nvmlSystemGetDriverVersion"))})
    count = _call(pynvml, "nvmlDeviceGetCount")
    yield json.dumps({"count": _encode(count)})
    for index in range(count if isinstance(count, int) else 0):
        answers: Dict[str, object] = {}
        for question, answer in _read_gpu(pynvml, index, deep):
            answers[question] = _encode(answer)
        yield json.dumps({"gpu": index, "answers": answers})
    # No nvmlShutdown: the process ends here, and a driver that hangs at its end would only cost the result.
    yield json.dumps({"complete": True})


def _guarded(nvml: Any, ask: Callable[[], Answer]) -> Answer:
    """One answer. Whatever is wrong with it, the other questions and the other GPUs are still asked."""
    try:
        return ask()
    except nvml.NVMLError as error:
        # By number: the texts differ between versions.
        return Failed(int(error.value))
    except AttributeError:
        return Failed(FUNCTION_NOT_FOUND)  # a pynvml from before the call
    except (ValueError, TypeError, ArithmeticError):
        return Failed(UNREADABLE)


def _call(nvml: Any, name: str, *arguments: Any) -> Answer:
    return _guarded(nvml, lambda: _plain(getattr(nvml, name)(*arguments)))


def _plain(value: Any) -> Answer:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [int(item) for item in value]
    return value if isinstance(value, (int, str)) else 0


def _read_gpu(nvml: Any, index: int, deep: bool) -> Iterator[Tuple[str, Answer]]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        yield "handle", Failed(int(error.value))
        return
    yield "handle", 0
    yield "bus", _guarded(nvml, lambda: _bus_id(nvml, handle))
    yield "uuid", _call(nvml, "nvmlDeviceGetUUID", handle)
    yield "serial", _call(nvml, "nvmlDeviceGetSerial", handle)
    yield "name", _call(nvml, "nvmlDeviceGetName", handle)
    yield "recovery", _guarded(nvml, lambda: _recovery_action(nvml, handle))
    yield "ecc", _call(nvml, "nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE)
    yield "ecc_aggregate", _call(nvml, "nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _AGGREGATE)
    yield "remap", _call(nvml, "nvmlDeviceGetRemappedRows", handle)
    yield "sram", _guarded(nvml, lambda: _sram_threshold(nvml, handle))
    yield "temperature", _call(nvml, "nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU)
    if deep:
        yield "inforom", _call(nvml, "nvmlDeviceValidateInforom", handle)


def _bus_id(nvml: Any, handle: Any) -> Answer:
    raw = nvml.nvmlDeviceGetPciInfo(handle).busId
    return normal_bus_id(raw.decode("ascii") if isinstance(raw, bytes) else str(raw))


def _recovery_action(nvml: Any, handle: Any) -> Answer:
    # The call as a whole succeeds while a field in it does not: each has a code of its own.
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [_FIELD_RECOVERY_ACTION])
    return int(value.value.uiVal) if value.nvmlReturn == 0 else Failed(int(value.nvmlReturn))


def _sram_threshold(nvml: Any, handle: Any) -> Answer:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, nvml.byref(status))
    return int(status.bThresholdExceeded)


def _encode(answer: Answer) -> object:
    return {"error": answer.code} if isinstance(answer, Failed) else answer


def _decode(raw: object) -> Answer:
    if isinstance(raw, dict):
        return Failed(int(raw.get("error", 0)))
    if isinstance(raw, (int, str)):
        return raw
    return [int(item) for item in raw] if isinstance(raw, list) else Failed(FUNCTION_NOT_FOUND)


@dataclass
class _Parts:
    init: Optional[int] = None
    driver: str = ""
    count: Optional[Answer] = None
    gpus: List[Gpu] = field(default_factory=list)
    complete: bool = False


def parse_snapshot(output: str) -> Snapshot:
    """The probe's output, also of one that was cut off in the middle of a line.

    Args:
        output: what `read_driver` yielded.
    """
    parts = _Parts()
    for line in output.splitlines():
        try:
            row = json.loads(line)
            _take_row(parts, row)
        except (ValueError, TypeError, AttributeError, KeyError):
            continue
    return Snapshot(parts.init, parts.driver, parts.count, tuple(parts.gpus), parts.complete)


def _take_row(parts: _Parts, row: Dict[str, Any]) -> None:
    if "init" in row:
        parts.init = int(row["init"])
        driver = _decode(row.get("driver", ""))
        parts.driver = driver if isinstance(driver, str) else ""
    elif "count" in row:
        parts.count = _decode(row["count"])
    elif "gpu" in row:
        answers = {str(question): _decode(raw) for question, raw in row["answers"].items()}
        parts.gpus.append(Gpu(int(row["gpu"]), answers))
    elif row.get("complete") is True:
        parts.complete = True
