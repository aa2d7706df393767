"""What can be wrong with an emulated BMC, and where each kind was seen: reports and captured trees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# name: (what it does, where it comes from)
KINDS: dict[str, tuple[str, str]] = {
    "timeout-after-accept": ("does what is asked and never answers", "time-outs that are re-sent by clients"),
    "timeout-before-accept": ("does nothing and never answers", "time-outs"),
    "drop-connection": ("does what is asked and closes the connection", "BMCs that restart"),
    "hang": ("takes the connection and never answers anything", "dead BMCs"),
    "slow": ("every answer takes `seconds` (20)", "captured DGX H100: worst answer 20.9 s"),
    "dribble": ("every answer comes a byte a second", "BMCs under load"),
    "busy-503": ("every request of `method` (all) answers 503", "BMCs under load"),
    "boot-503": (
        "503 for `seconds` (60) after the machine was switched on",
        "bmcweb not ready: sonic-platform-common PR#675",
    ),
    "hmc-503": ("the HGX subtree answers 503 while the host is off", "infra-controller#6412, DGX H100"),
    "expired-token": ("every session is forgotten once", "sessions of 30 s: captured DGX H100"),
    "session-limit": ("no session is given: 503", "RAC0218, gofish#75"),
    "auth-401": ("no login is right", "changed passwords"),
    "etag-412": ("a PATCH without the right If-Match answers 412", "AMI BMCs"),
    "etag-428": ("a PATCH without If-Match answers 428", "PreconditionHeaderMissing: gofish#171"),
    "conflict-409": ("On answers 409 for `seconds` (10) after off", "LP#2162995, iDRAC10"),
    "refuse-reset": ("every Reset answers 400 and does nothing", "validation errors"),
    "stuck-task": ("tasks stay in Running", "iDRAC JCP052: metal-operator#453"),
    "vanished-task": ("tasks answer 404", "iDRAC-Redfish-Scripting#160, metal-operator#668"),
    "task-exception": ("tasks end as Exception with status OK", "captured DGX H100"),
    "task-critical": ("tasks end as Completed with status Critical", "metal-operator#453"),
    "partial-component": ("`component` keeps its old version", "partial updates"),
    "version-after-level": ("versions change only at level `level`", "ERoT and CPLD need an AC cycle"),
    "boot-ignored": ("boots from disk whatever was set", "BMO#1187, metal-operator#80"),
    "boot-not-set": ("a boot override is accepted with 204 and not taken", "a 204 is no result"),
    "boot-never-cleared": ("the override stays after the boot", "reinstall loops"),
    "boot-continuous": ("reports Continuous whatever is asked", "sushy-emulator"),
    "boot-post-400": ("no override while the machine is on", "UnableToModifyDuringSystemPOST: LP#2136275"),
    "boot-clear-refused": ("the override cannot be taken away", "the worst case of reinstall loops"),
    "power-says": ("says power `state` whatever is true", "what a BMC says of the power is no evidence"),
    "power-deaf": (
        "accepts every Reset and does nothing",
        "DGX H100: success, and the state did not change",
    ),
    "no-graceful": ("GracefulShutdown is not offered", "vendor differences"),
    "nonsense": ("answers `form`: html, truncated, list, types, empty, binary, huge, deep", "broken proxies"),
    "wrong-serial": ("is the BMC of another machine", "swapped cables"),
    "no-serial": ("tells no serial number", "captured HGX_Baseboard_0"),
    "missing-boot": ("the system has no Boot", "captured HGX_Baseboard_0"),
    "erase-fails": ("SecureErase answers 400", "drives without the feature"),
    "erase-stuck": ("SecureErase never ends", "drives that hang"),
    "erase-lies": ("SecureErase says done and erases nothing", "the reason for reading back"),
}
# Those that strike at requests of a path.
PATHED = frozenset({
    "timeout-after-accept", "timeout-before-accept", "drop-connection", "hang", "slow", "dribble", "busy-503",
    "nonsense", "erase-fails", "erase-stuck", "erase-lies",
})  # fmt: skip
# Those that strike once, and again; the others are states that last until they are cleared.
COUNTED = PATHED | {
    "expired-token", "session-limit", "conflict-409", "refuse-reset", "power-deaf", "boot-ignored",
    "boot-not-set", "boot-never-cleared", "boot-post-400", "boot-clear-refused",
}  # fmt: skip


@dataclass(slots=True)
class Fault:
    """One fault that is there now.

    Attributes:
        remaining: how often it still strikes; None for as long as it is not cleared.
        path: only on paths that contain this text.
    """

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    remaining: int | None = None
    path: str = ""

    def get(self, key: str, otherwise: Any) -> Any:
        """A parameter."""
        return self.parameters.get(key, otherwise)


class Faults:
    """Those that a BMC has now."""

    def __init__(self) -> None:
        """None."""
        self._all: dict[str, Fault] = {}

    def inject(self, name: str, *, remaining: int | None = None, path: str = "", **parameters: Any) -> None:
        """Put one in.

        Args:
            name: a key of `KINDS`.
            remaining: how often it strikes, where it is one of `COUNTED`; None for until it is cleared.
            path: strikes only where a path contains this, if it is one of `PATHED`.
            **parameters: what its line in `KINDS` names.

        Raises:
            ValueError: there is no such kind, or it cannot be counted or tied to a path.
        """
        if name not in KINDS:
            raise ValueError(f"no BMC fault {name!r}: choose one of {' '.join(KINDS)}")
        if remaining is not None and name not in COUNTED:
            raise ValueError(f"{name} lasts until it is cleared: it takes no count")
        if path and name not in PATHED:
            raise ValueError(f"{name} concerns no request: it takes no path")
        self._all[name] = Fault(name, parameters, remaining, path)

    def clear(self, name: str = "") -> None:
        """Take one away, or all."""
        if name:
            self._all.pop(name, None)
        else:
            self._all.clear()

    def has(self, name: str, path: str = "") -> Fault | None:
        """The fault where it is there and concerns the path; that alone uses nothing up."""
        fault = self._all.get(name)
        return fault if fault is not None and fault.path in path else None

    def strikes(self, name: str, path: str = "") -> Fault | None:
        """The fault where it strikes now, which may have been the last time."""
        fault = self.has(name, path)
        if fault is not None and fault.remaining is not None:
            fault.remaining -= 1
            if fault.remaining <= 0:
                del self._all[name]
        return fault

    def names(self) -> list[str]:
        """Those that are there."""
        return sorted(self._all)
