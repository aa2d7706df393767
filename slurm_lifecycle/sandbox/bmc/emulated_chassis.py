"""An emulated machine of the sandbox as the chassis behind a BMC."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from slurm_lifecycle.sandbox import control
from slurm_lifecycle.sandbox.faults import base_nvml
from slurm_lifecycle.sandbox.settings import NodeLayout, SandboxError

# A machine's supervisor waits so long at most for processes that are stuck in the kernel.
_TIMEOUT_S = 8.0


class EmulatedChassis:
    """Acts through the machine's supervisor; what is true of its power is read from the state it keeps."""

    def __init__(self, node: NodeLayout, gpus: int) -> None:
        """Of one node."""
        self._node = node
        self._gpus = gpus

    def _state(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._node.machine.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
        return {}

    def power(self) -> str:
        """A machine that crashed, hangs or installs draws power."""
        return "off" if self._state().get("power", "off") == "off" else "on"

    def gpu_serials(self) -> list[str]:
        """Serial numbers of the GPUs that are in it now, as NVML tells them."""
        replaced = {int(slot): int(count) for slot, count in self._state().get("replaced", {}).items()}
        nvml = base_nvml(self._node.name, self._gpus, replaced)
        return [nvml[f"gpu.{slot}.serial"] for slot in range(self._gpus)]

    def press_on(self, boot_from: str) -> None:
        """Switch on."""
        self._do("power_on", boot_from=boot_from)

    def cut(self) -> None:
        """Off, at once."""
        self._do("power_off")

    def ask_shutdown(self) -> None:
        """Press the power button."""
        self._do("shutdown")

    def cut_mains(self) -> None:
        """Off, and it stays so when the mains come back."""
        self._do("mains")

    def _do(self, command: str, **arguments: Any) -> None:
        try:
            control.ask(self._node.control, command, timeout_s=_TIMEOUT_S, **arguments)
        except SandboxError as problem:
            # As a BMC whose power sequencer does not answer: the request was taken, and nothing happens.
            print(f"{self._node.name}: {command}: {problem}", flush=True)
