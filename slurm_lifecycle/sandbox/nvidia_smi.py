"""A small `nvidia-smi` for emulated nodes: lists GPUs, and resets one.

Only what the suite and a demo call: `-L`, and `--gpu-reset -i INDEX` (`-r -i INDEX`).
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

_LINK = Path("/run/slc-machine")
_RESET_TIMEOUT_S = 10.0
_TEXT_BYTES = 96


def list_gpus() -> int:
    """Prints the GPUs that NVML knows. Exit 9 when the driver does not answer, as the real one."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        print("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")
        return 12
    code = nvml.nvmlInitWithFlags(0)
    if code != 0:
        print(f"Failed to initialize NVML: error {code}")
        return int(code)
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for i in range(count.value):
        handle = ctypes.c_void_p()
        code = nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle))
        name = ctypes.create_string_buffer(_TEXT_BYTES)
        uuid = ctypes.create_string_buffer(_TEXT_BYTES)
        if code == 0:
            code = nvml.nvmlDeviceGetName(handle, name, _TEXT_BYTES)
        if code == 0:
            code = nvml.nvmlDeviceGetUUID(handle, uuid, _TEXT_BYTES)
        if code == 0:
            print(f"GPU {i}: {name.value.decode()} (UUID: {uuid.value.decode()})")
        else:
            print(f"Unable to determine the device handle for GPU {i}: error {code}")
    return 0


def reset_gpu(index: str) -> int:
    """Asks the machine for the reset of one GPU and waits for it."""
    answer = _LINK / f"reset.{index}"
    answer.unlink(missing_ok=True)
    # Without O_NONBLOCK a FIFO that nobody reads would block for ever.
    fifo = os.open(_LINK / "request", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fifo, f"gpu-reset {index}\n".encode())
    os.close(fifo)
    deadline = time.monotonic() + _RESET_TIMEOUT_S
    while not answer.exists():
        if time.monotonic() > deadline:
            print("GPU reset timed out")
            return 1
        time.sleep(0.05)
    text = answer.read_text(encoding="utf-8").strip()
    if text != "ok":
        print(text)
        return 1
    print(f"GPU {index} was successfully reset.\nAll done.")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    if argv in (["-L"], ["--list-gpus"], []):
        return list_gpus()
    if (
        len(argv) == 3
        and argv[0] in ("-r", "--gpu-reset")
        and argv[1] in ("-i", "--id")
        and argv[2].isdigit()
    ):
        return reset_gpu(argv[2])
    print("this emulated nvidia-smi knows only -L and --gpu-reset -i INDEX")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
