"""Faults that can be injected, and what each one shows: kernel-log lines and the state of the fake NVML.

Pure: a fault is looked up and parsed here; the machine supervisor writes it where a node would see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from slurm_lifecycle.sandbox.settings import SandboxError

# From the least to the most: what one clears, those after it clear as well (a reimage cuts the power).
CLEARS = ("gpu-reset", "reboot", "power", "reimage", "never")
BOOT_HANG = "boot-hang"
OS_DEAF = "os-deaf"
# Slots of an eight-GPU HGX board; more GPUs than that go on counting.
_BUSES = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)

# XID -> text after "pid, name". The wording follows the driver's, `{bus}` is the GPU's PCI address.
_XID_TEXT: Mapping[int, str] = {
    13: "pid=2301, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address",
    31: "pid=2301, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0",
    43: "pid=2301, name=python3, Ch 00000008",
    45: "pid=2301, name=python3, Ch 00000008",
    48: "pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU",
    63: "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "pid='<unknown>', name=<unknown>, Row Remapper: Failed to mark row for remapping",
    74: "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 4 (0x0, 0x0, 0x10000, 0x0)",
    79: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    94: "pid=2301, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    95: "pid=2301, name=python3, Uncontained: FBHUB. RST: Yes, D-RST: No",
    109: "pid=2301, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x1c002",
    119: "pid=2301, name=python3, Timeout after 6s of waiting for RPC response from GPU GSP!",
    120: "pid='<unknown>', name=<unknown>, GSP task exception: bus error @ pc:0x55e4f0",
    154: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
}

# XID -> fields of that GPU in NVML, where real hardware shows the fault there too.
_XID_NVML: Mapping[int, Mapping[str, str]] = {
    48: {"ecc_unc_volatile": "1", "ecc_unc_aggregate": "1", "recovery_action": "1"},
    63: {"remap_pending": "1", "remap_unc": "1"},
    64: {"remap_failure": "1"},
    79: {"lost": "1"},
    94: {"ecc_unc_volatile": "1", "ecc_unc_aggregate": "1"},
    95: {"ecc_unc_volatile": "1", "ecc_unc_aggregate": "1", "recovery_action": "1"},
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected fault.

    Attributes:
        key: what it is and where, such as `xid79 gpu3`; injecting the same key again replaces it.
        clears: what makes it go away: `gpu-reset`, `reboot`, `power` (off and on), `reimage`, or `never`.
        kmsg: kernel-log texts, written when it happens and at each boot that it survives.
        nvml: keys of the fake NVML's state file.
    """

    key: str
    clears: str
    kmsg: tuple[str, ...] = ()
    nvml: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As kept in the machine's state file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Fault:
        """As read back."""
        return cls(str(raw["key"]), str(raw["clears"]), tuple(raw["kmsg"]), dict(raw["nvml"]))


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A row of the table of faults.

    Attributes:
        needs_gpu: whether it happens on one GPU.
        clears: what makes it go away on real hardware.
        text: words for the help.
    """

    needs_gpu: bool
    clears: str
    text: str


KINDS: Mapping[str, FaultKind] = {
    "xid": FaultKind(
        True, "gpu-reset", "a driver error (give its number): kernel log, and NVML where it shows"
    ),
    "gpu-lost": FaultKind(True, "reboot", "a GPU that no call reaches any more, silent in the kernel log"),
    "gpu-reset-required": FaultKind(True, "gpu-reset", "a GPU that wants a reset"),
    "remap-pending": FaultKind(True, "gpu-reset", "a row remap that waits for a reset"),
    "remap-failure": FaultKind(True, "never", "a row remap that failed: the GPU has to be replaced"),
    "ecc-uncorrected": FaultKind(True, "gpu-reset", "uncorrected memory errors in the volatile counter"),
    "driver-mismatch": FaultKind(
        False, "reimage", "kernel module and library of different versions (init gives 18)"
    ),
    "driver-down": FaultKind(False, "reboot", "kernel module not loaded (init gives 9)"),
    "nvml-hang": FaultKind(False, "reboot", "every NVML call after init sleeps for ever"),
    BOOT_HANG: FaultKind(
        False, "power", "the next boot never ends; the node is dark until its power was off"
    ),
    OS_DEAF: FaultKind(
        False, "reimage", "the operating system does not shut down when its power button is pressed"
    ),
    "kernel-log": FaultKind(False, "reboot", "any text in the kernel log (--text)"),
}


def pci_bus(gpu: int) -> str:
    """PCI address of a GPU as the kernel log writes it, without the function."""
    number = _BUSES[gpu] if gpu < len(_BUSES) else 0xE0 + gpu
    return f"0000:{number:02x}:00"


def survivors(faults: Sequence[Fault], step: str) -> list[Fault]:
    """The faults that are still there after a step of the ladder.

    Args:
        faults: what was there before.
        step: one of `CLEARS`.
    """
    return [fault for fault in faults if CLEARS.index(fault.clears) > CLEARS.index(step)]


def base_nvml(node: str, gpus: int, replaced: Mapping[int, int] | None = None) -> dict[str, str]:
    """State of healthy GPUs; serial and uuid depend only on node, slot and how often it was replaced.

    Args:
        node: the node's name.
        gpus: how many it has.
        replaced: how often the GPU of a slot was replaced.
    """
    state = {"gpus": str(gpus)}
    digits = _digits(node)
    for i in range(gpus):
        number = i + 100 * (replaced or {}).get(i, 0)
        state[f"gpu.{i}.bus"] = f"0000{pci_bus(i).upper()}.0"
        state[f"gpu.{i}.serial"] = f"165{digits:05d}{number:05d}"
        state[f"gpu.{i}.uuid"] = f"GPU-5a4db0c5-{digits:04x}-4000-8000-{number:012x}"
    return state


def machine_serial(node: str) -> str:
    """Serial number of the machine, as its BMC and its firmware tables tell it."""
    return f"SLC{_digits(node):06d}"


def _digits(node: str) -> int:
    return int("".join(c for c in node if c.isdigit()) or "0")


def nvml_text(base: Mapping[str, str], faults: Sequence[Fault]) -> str:
    """The state file: the healthy state with every fault laid over it."""
    state = dict(base)
    for fault in faults:
        state.update(fault.nvml)
    return "".join(f"{key}={value}\n" for key, value in state.items())


def make_fault(
    kind: str,
    *,
    gpus: int,
    gpu: int | None = None,
    code: int | None = None,
    clears: str | None = None,
    text: str | None = None,
) -> Fault:
    """A fault from what a person asked for.

    Args:
        kind: a key of `KINDS`.
        gpus: GPUs of the node.
        gpu: which GPU, for the kinds that need one; GPU 0 when left out.
        code: number of the XID.
        clears: what makes it go away; the kind's own default when left out.
        text: kernel-log text in place of the usual one.

    Raises:
        SandboxError: when something is missing or out of range.
    """
    row = KINDS.get(kind)
    if row is None:
        raise SandboxError(f"unknown fault {kind!r}: choose one of {' '.join(KINDS)}")
    if clears is not None and clears not in CLEARS:
        raise SandboxError(f"clears={clears!r}: choose one of {' '.join(CLEARS)}")
    if text is not None and ("\n" in text or not text.isprintable()):
        raise SandboxError("--text: one printable line")
    slot = gpu or 0
    if not 0 <= slot < gpus:
        raise SandboxError(f"GPU {slot}: the node has GPUs 0 to {gpus - 1}")
    if kind == "xid":
        return _xid(code, slot, clears, text)
    if kind == "kernel-log":
        if text is None:
            raise SandboxError("kernel-log: give the line with --text")
        return Fault(f"kernel-log {text}", clears or row.clears, (text,))
    where = f"{kind} gpu{slot}" if row.needs_gpu else kind
    return Fault(where, clears or row.clears, (text,) if text else (), _nvml_of(kind, slot))


def _nvml_of(kind: str, gpu: int) -> dict[str, str]:
    per_node = {
        "driver-mismatch": {"init": "18"},
        "driver-down": {"init": "9"},
        "nvml-hang": {"hang": "1"},
    }
    if kind in (BOOT_HANG, OS_DEAF):
        return {}
    if kind in per_node:
        return per_node[kind]
    per_gpu: Mapping[str, Mapping[str, str]] = {
        "gpu-lost": {"lost": "1"},
        "gpu-reset-required": {"reset_required": "1", "recovery_action": "1"},
        "remap-pending": {"remap_pending": "1", "remap_unc": "1"},
        "remap-failure": {"remap_failure": "1"},
        "ecc-uncorrected": {"ecc_unc_volatile": "1", "ecc_unc_aggregate": "1"},
    }
    return {f"gpu.{gpu}.{key}": value for key, value in per_gpu[kind].items()}


def _xid(code: int | None, gpu: int, clears: str | None, text: str | None) -> Fault:
    if code is None or not 1 <= code <= 999:
        raise SandboxError("xid: give its number, such as `xid 79`")
    words = text or _XID_TEXT.get(code, "pid='<unknown>', name=<unknown>, Ch 00000008")
    lines = [f"NVRM: Xid (PCI:{pci_bus(gpu)}): {code}, {words}"]
    if code == 79:
        # The driver says it twice, once without a number.
        lines.append(f"NVRM: GPU {pci_bus(gpu)}.0: GPU has fallen off the bus.")
    nvml = dict(_XID_NVML.get(code, {}))
    if code == 154:
        nvml = _recovery_of(words)
    default = "gpu-reset"
    if code in (79, 154):
        default = "reboot"
    elif code == 64:
        # A failed remap is a property of the memory: no boot heals it.
        default = "never"
    return Fault(
        f"xid{code} gpu{gpu}", clears or default, tuple(lines), {f"gpu.{gpu}.{k}": v for k, v in nvml.items()}
    )


def _recovery_of(words: str) -> dict[str, str]:
    tail = words.rpartition(" to 0x")[2]
    return {"recovery_action": str(int(tail[0], 16))} if tail[:1] in tuple("01234567") else {}
