"""GPU checks: each a pure judgement of one look at the driver.

NotSupported (3) and an unknown function (13, an old driver) mean "not applicable" for that GPU; no
permission (4) means that the check could not run, which never condemns a node.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Tuple

from slurm_lifecycle.node.checks import nvml
from slurm_lifecycle.node.checks.base import GpuCheck, GpuContext, Judged, Judgement
from slurm_lifecycle.node.checks.nvml import Failed, Gpu
from slurm_lifecycle.node.checks.xid import RECOVERY_CODES
from slurm_lifecycle.node.findings import Sign

_NOT_APPLICABLE = (nvml.NOT_SUPPORTED, nvml.FUNCTION_NOT_FOUND)
_TELLING = ((nvml.CORRUPTED_INFOROM, "inforom"),)
_QUESTIONS = ("handle", "bus", "uuid", "serial", "recovery", "ecc", "remap", "sram", "temperature", "inforom")


def _component(context: GpuContext, gpu: Gpu) -> str:
    if gpu.device:
        return context.inventory.component_of(gpu.device)
    return f"gpu{gpu.index}"


def _device(context: GpuContext, gpu: Gpu) -> str:
    if gpu.device:
        return gpu.device
    for known in context.inventory.gpus:
        if known.index == gpu.index:
            return known.device
    return ""


def _sign(context: GpuContext, gpu: Gpu, code: str, text: str = "", evidence: str = "") -> Sign:
    return Sign(code, _component(context, gpu), text, evidence, _device(context, gpu))


def _each(context: GpuContext, question: str, judge: Callable[[Gpu], Tuple[Sign, ...]]) -> Judgement:
    """Judge every GPU that was asked; None where not one of them was, or the driver did not come so far."""
    asked = [gpu for gpu in context.snapshot.gpus if question in gpu.answers]
    if not asked or not context.snapshot.complete:
        return None
    signs: List[Sign] = []
    read = set()
    for gpu in asked:
        signs += judge(gpu)
        error = gpu.error(question)
        if error is None or error in _NOT_APPLICABLE or (error, question) in _TELLING:
            read.add(_device(context, gpu) or _component(context, gpu))
        if error == nvml.NO_PERMISSION:
            signs.append(_sign(context, gpu, "CHECK_FAILED", f"no permission to read {question}"))
    # A GPU that is gone or answers with an error has not become well.
    here = {known.device for known in context.inventory.gpus}
    here |= {_device(context, gpu) for gpu in context.snapshot.gpus}
    return Judged(tuple(signs), frozenset(here - read))


def _only(sign: Sign) -> Judged:
    return Judged((sign,))


def judge_driver(context: GpuContext) -> Judgement:
    """Does the driver answer at all, and is it the library's own?"""
    init = context.snapshot.init
    if init is None or context.expected == 0:
        return None
    gpus_here = bool(context.expected or context.gpus_on_bus or context.inventory.gpus)
    if init == 0:
        count = context.snapshot.count
        if isinstance(count, Failed):
            code = "GPU_LOST" if count.code == nvml.GPU_IS_LOST else "DRIVER_DOWN"
            return _only(Sign(code, "driver", "", f"counting GPUs: NVML returned {count.code}"))
        return Judged()
    if init == nvml.MISMATCH:
        return _only(Sign("DRIVER_MISMATCH", "driver", "", "nvmlInit returned 18"))
    if init in (nvml.NO_PYNVML, nvml.LIBRARY_NOT_FOUND, nvml.NO_PERMISSION):
        if not gpus_here:
            return None
        words = {
            nvml.NO_PYNVML: "nvidia-ml-py is not installed",
            nvml.LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 not found",
            nvml.NO_PERMISSION: "no permission to use the driver",
        }
        return _only(Sign("CHECK_FAILED", "driver", words[init]))
    if init == nvml.IRQ_ISSUE:
        return _only(Sign("GPU_IRQ", "driver", "", "nvmlInit returned 11"))
    if init in _NOT_APPLICABLE or (init == nvml.DRIVER_NOT_LOADED and not gpus_here):
        return None
    return _only(Sign("DRIVER_DOWN", "driver", "", f"nvmlInit returned {init}"))


def judge_count(context: GpuContext) -> Judgement:
    """Does the driver list as many GPUs as this node must have?"""
    count, expected = context.snapshot.count, context.expected
    if not expected or not isinstance(count, int) or not context.snapshot.complete:
        return None
    if count >= expected:
        return Judged()
    present = {gpu.device for gpu in context.snapshot.gpus}
    missing = [known for known in context.inventory.gpus if known.device not in present]
    lost = sum(1 for gpu in context.snapshot.gpus if not gpu.device)
    evidence = "; ".join(f"{gpu.component} {gpu.device} serial {gpu.serial}" for gpu in missing)
    text = f"{count} of {expected} GPUs"
    if len(missing) == 1 and not lost:
        return _only(Sign("GPU_COUNT", missing[0].component, text, evidence, missing[0].device))
    return _only(Sign("GPU_COUNT", "gpus", text, evidence))


def judge_lost(context: GpuContext) -> Judgement:
    """Does any call say that a GPU is lost or needs a reset?"""

    def judge(gpu: Gpu) -> Tuple[Sign, ...]:
        for code, finding in ((nvml.GPU_IS_LOST, "GPU_LOST"), (nvml.RESET_REQUIRED, "GPU_RESET_REQ")):
            for question in _QUESTIONS:
                if gpu.error(question) == code:
                    return (_sign(context, gpu, finding, "", f"{question}: NVML returned {code}"),)
        return ()

    return _each(context, "handle", judge)


def judge_recovery(context: GpuContext) -> Judgement:
    """What does the driver itself ask for (field 230)?"""

    def judge(gpu: Gpu) -> Tuple[Sign, ...]:
        action = gpu.number("recovery")
        code = "" if action is None else RECOVERY_CODES.get(action, "RECOVERY_UNKNOWN")
        return (_sign(context, gpu, code, "", f"recovery action {action}"),) if code else ()

    return _each(context, "recovery", judge)


def judge_ecc(context: GpuContext) -> Judgement:
    """Uncorrected memory errors since the driver was loaded."""

    def judge(gpu: Gpu) -> Tuple[Sign, ...]:
        errors = gpu.number("ecc")
        if not errors:
            return ()
        aggregate = gpu.number("ecc_aggregate")
        return (_sign(context, gpu, "ECC_UNCORRECTED", "", f"{errors} volatile, {aggregate} aggregate"),)

    return _each(context, "ecc", judge)


def judge_sram(context: GpuContext) -> Judgement:
    """Has the driver seen more SRAM errors in one place than the vendor allows?"""

    def judge(gpu: Gpu) -> Tuple[Sign, ...]:
        return (_sign(context, gpu, "SRAM_THRESHOLD"),) if gpu.number("sram") else ()

    return _each(context, "sram", judge)


def judge_remap(context: GpuContext) -> Judgement:
    """Row remapping: pending until the next reset, or failed for good."""

    def judge(gpu: Gpu) -> Tuple[Sign, ...]:
        rows: Optional[object] = gpu.answers.get("remap")
        if not isinstance(rows, list) or len(rows) != 4:
            return ()
        corrected, uncorrected, pending, failure = rows
        evidence = f"{corrected} corrected, {uncorrected} uncorrected rows remapped"
        codes = [code for code, flag in (("REMAP_FAILURE", failure), ("REMAP_PENDING", pending)) if flag]
        return tuple(_sign(context, gpu, code, "", evidence) for code in codes)

    return _each(context, "remap", judge)


def judge_inforom(context: GpuContext) -> Judgement:
    """Is the GPU's own configuration memory intact? Read at boot and once an hour."""

    def judge(gpu: Gpu) -> Tuple[Sign, ...]:
        return (_sign(context, gpu, "INFOROM"),) if gpu.error("inforom") == nvml.CORRUPTED_INFOROM else ()

    return _each(context, "inforom", judge)


GPU_CHECKS: Tuple[GpuCheck, ...] = (
    GpuCheck(
        "gpu_driver",
        "a GPU",
        "The driver initialises and matches its library; a mismatch after an upgrade fails every new job.",
        ("DRIVER_MISMATCH", "DRIVER_DOWN", "GPU_IRQ", "CHECK_FAILED"),
        judge_driver,
    ),
    GpuCheck(
        "gpu_count",
        "expected_gpus in the configuration",
        "The driver lists as many GPUs as configured, in two samples in a row.",
        ("GPU_COUNT",),
        judge_count,
    ),
    GpuCheck(
        "gpu_lost",
        "NVML",
        "No call says that a GPU is lost or requires a reset.",
        ("GPU_LOST", "GPU_RESET_REQ"),
        judge_lost,
    ),
    GpuCheck(
        "gpu_recovery",
        "NVML field 230 (driver 550 or newer)",
        "The driver asks for no recovery action; it knows best what a GPU needs.",
        ("RECOVERY_RESET", "RECOVERY_REBOOT", "RECOVERY_DRAIN_P2P", "RECOVERY_UNKNOWN"),
        judge_recovery,
    ),
    GpuCheck(
        "gpu_ecc",
        "ECC switched on",
        "No uncorrected memory error since the driver was loaded.",
        ("ECC_UNCORRECTED", "CHECK_FAILED"),
        judge_ecc,
    ),
    GpuCheck(
        "gpu_sram",
        "a driver that has the call, and root",
        "The SRAM error threshold of the vendor is not exceeded.",
        ("SRAM_THRESHOLD", "CHECK_FAILED"),
        judge_sram,
    ),
    GpuCheck(
        "gpu_remap",
        "Ampere or newer",
        "No row remap is pending (warns) or failed (replace the GPU).",
        ("REMAP_PENDING", "REMAP_FAILURE", "CHECK_FAILED"),
        judge_remap,
    ),
    GpuCheck(
        "gpu_inforom",
        "NVML",
        "The GPU's configuration memory is intact; read at boot and once an hour.",
        ("INFOROM", "CHECK_FAILED"),
        judge_inforom,
    ),
)
