"""The machine behind an emulated BMC."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Chassis(Protocol):
    """What a BMC can do to its machine. Called from the simulator's loop: none of it may take long."""

    def power(self) -> str:
        """`on` or `off`, as it truly is."""

    def press_on(self, boot_from: str) -> None:
        """Switch on, and boot from `disk` or from the `network`."""

    def cut(self) -> None:
        """Off, at once."""

    def ask_shutdown(self) -> None:
        """Ask the operating system to shut down; it may take its time, or not listen."""

    def cut_mains(self) -> None:
        """Off, with the standby power too."""


class VirtualChassis:
    """A machine in memory, for tests.

    Attributes:
        calls: what was done to it, in order. boots: what it booted from, in order.
        deaf_os: it does not shut down when asked to.
        delay_s: how long after a command its power changes.
        restores_power: it switches itself on when its mains come back.
    """

    def __init__(
        self,
        *,
        on: bool = True,
        deaf_os: bool = False,
        delay_s: float = 0.0,
        restores_power: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """On, and obedient, unless told otherwise."""
        self.calls: list[str] = []
        self.boots: list[str] = []
        self.deaf_os = deaf_os
        self.delay_s = delay_s
        self.restores_power = restores_power
        self._clock = clock
        self._on = on
        self._next: tuple[float, bool] | None = None

    def power(self) -> str:
        """As it is now."""
        if self._next is not None and self._clock() >= self._next[0]:
            self._on, self._next = self._next[1], None
        return "on" if self._on else "off"

    def press_on(self, boot_from: str) -> None:
        """It boots, unless it is on."""
        self.calls.append(f"on {boot_from}")
        if self.power() == "off":
            self.boots.append(boot_from)
            self._turn(True)

    def cut(self) -> None:
        """Off."""
        self.calls.append("cut")
        self._turn(False)

    def ask_shutdown(self) -> None:
        """Off, where its system listens."""
        self.calls.append("shutdown")
        if not self.deaf_os:
            self._turn(False)

    def cut_mains(self) -> None:
        """Off, and on again where it is set to that."""
        self.calls.append("mains")
        self._turn(self.restores_power)
        if self.restores_power:
            self.boots.append("disk")

    def _turn(self, on: bool) -> None:
        if self.delay_s:
            self._next = (self._clock() + self.delay_s, on)
        else:
            self._on, self._next = on, None
