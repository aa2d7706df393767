"""The management controller of each machine: power by the network, with its vices.

There is no port for it in the product yet. The provisioner and people of the simulation go through it; it is
made so that a port can be put in front. An answer takes time, so it comes by a callback.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.streams import stream


class Power(Enum):
    """What can be asked of it."""

    STATE = "state"
    ON = "on"
    OFF = "off"
    CYCLE = "cycle"
    INSTALL = "install"
    """Cycle, and boot from the network once."""


@dataclass(frozen=True, slots=True)
class BmcSettings:
    """Chances are per request.

    Attributes:
        answer_s: how long an answer takes. slow, slow_s: chance that one takes so long.
        hangs, timeout_s: chance that none comes; the caller gives up then.
        lies: chance that it says `on` of a machine that is off.
        deaf: chance that it accepts an action and does nothing.
    """

    answer_s: float = 1.0
    slow: float = 0.0
    slow_s: float = 20.0
    hangs: float = 0.0
    timeout_s: float = 60.0
    lies: float = 0.0
    deaf: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What it said.

    Attributes:
        ok: it accepted. powered: what it says of the power, None where it says nothing.
    """

    ok: bool
    powered: bool | None = None
    text: str = ""


class Bmcs:
    """The controllers of all machines."""

    def __init__(self, machines: Machines, settings: BmcSettings) -> None:
        """All of them answer, as the settings allow."""
        self._machines = machines
        self.settings = settings
        self._asked: dict[str, int] = {}

    def ask(self, name: str, what: Power, rung: str, done: Callable[[Answer], None]) -> None:
        """Ask the controller of a machine.

        Args:
            rung: what a boot that comes of it is part of.
            done: called with the answer, when it is there or was given up.
        """
        settings, timeline = self.settings, self._machines.timeline
        number = self._asked.get(name, 0)
        self._asked[name] = number + 1
        rng = stream(self._machines.seed, name, f"bmc/{number}")
        hangs, slow, lies, deaf = (rng.random() for _ in range(4))
        if hangs < settings.hangs:
            timeline.after(settings.timeout_s, lambda: done(Answer(False, text="no answer in time")))
            return

        def answer() -> None:
            if name not in self._machines:
                done(Answer(False, text="no route to host"))
            else:
                done(self._act(name, what, rung, lies=lies < settings.lies, deaf=deaf < settings.deaf))

        timeline.after(settings.slow_s if slow < settings.slow else settings.answer_s, answer)

    def _act(self, name: str, what: Power, rung: str, *, lies: bool, deaf: bool) -> Answer:
        machines = self._machines
        powered = machines.machine(name).powered
        if what is Power.STATE:
            return Answer(True, powered or lies)
        if what is Power.ON and powered:
            return Answer(False, True, "409: the power is on")
        if deaf:
            return Answer(True)
        if what is Power.ON:
            machines.power_on(name, rung)
        elif what is Power.OFF:
            machines.power_off(name)
        elif what is Power.CYCLE:
            machines.power_cycle(name, rung)
        else:
            machines.run_installer(name)
        return Answer(True)
