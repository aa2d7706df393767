"""What to ask of a machine next, in a power cycle, an AC cycle or a reimage from the network.

A pure function of the commands on record and of what was read after them:

    graceful off -> (its time is over) force off -> off, read twice -> [AC cycle] [boot once, read back] -> on
    -> a new boot in Slurm [with the image's marker, override taken away]

Rules that hold whatever a BMC answers:
- A command is never sent again unless it was refused. `On` is the one exception, since it does nothing to a
  machine that is on: one that reads as off long after did not hear it, and no node may be left off.
- A reply is no evidence: a 204 may come from a BMC that does nothing, an exception from one that obeys.
- Once off was asked for, the machine is switched on again before the attempt ends, whoever took the node over
  meanwhile. Only when something that stands in the way of `On` is about the BMC does the attempt stay open.
- A machine that does not read as off after its power was cut may be off all the same: it is sent `On` too.
"""

from slurm_lifecycle.core.machine import BmcProblem, MachineCommand, MachineReading, PowerState, StepOutcome
from slurm_lifecycle.core.model import AttemptOutcome
from slurm_lifecycle.core.sequence_record import (
    Decision,
    End,
    Goal,
    Marker,
    Note,
    Past,
    Send,
    Situation,
    Wait,
    settled_at,
)

# Sent to a machine that reads as off all the while; the override is asked to go as often.
MAX_ON = MAX_CLEAR = 3
# A request to shut down that is refused once may have met a busy BMC.
_GRACEFUL_TRIES = 2
# Nothing but a person helps against these: not waited for.
_LASTING = frozenset(
    {
        BmcProblem.NOT_CONFIGURED,
        BmcProblem.CREDENTIALS,
        BmcProblem.TLS,
        BmcProblem.AUTH,
        BmcProblem.WRONG_MACHINE,
    }
)


def next_step(now: Situation) -> Decision:
    """The next step of a sequence, or its end."""
    seen = Past(now)
    if now.reading is not None and now.reading.problem in _LASTING and not seen.begun:
        return End(AttemptOutcome.CANCELLED, now.reading.detail or now.reading.problem.value)
    if seen.booted and (seen.begun or now.goal is Goal.POWER_CYCLE):
        return _booted(now, seen)
    if not seen.begun:
        return _begin(now, seen)
    silent = now.reading is None or now.reading.problem is not BmcProblem.NONE
    if now.gone and silent and now.now >= now.deadline:
        # A machine that was taken out of the cluster with its BMC: nobody waits for it.
        return End(AttemptOutcome.AMBIGUOUS, f"the node is not in Slurm any more; {_silence(now)}")
    if not seen.on_sent:
        return _switch_off(now, seen) if seen.off_seen is None else _while_off(now, seen)
    return _switched_on(now, seen)


# ---------------------------------------------------------------- before anything was sent


def _begin(now: Situation, seen: Past) -> Decision:
    reading = seen.fresh(None)
    if now.may_not:
        return End(AttemptOutcome.CANCELLED, now.may_not)
    if now.now >= now.deadline:
        return End(AttemptOutcome.CANCELLED, f"not begun by its deadline: {_silence(now)}")
    if now.goal is Goal.REIMAGE and seen.sent(MachineCommand.STAGE) is None:
        if staged := seen.unsupported(MachineCommand.STAGE):
            return End(AttemptOutcome.FAILED, staged.detail)
        return _send_or_give_up(now, seen, MachineCommand.STAGE, AttemptOutcome.CANCELLED)
    if reading is None:
        if now.now - now.created_at >= now.limits.silent_s:
            return End(AttemptOutcome.CANCELLED, _silence(now))
        return Wait(_silence(now))
    if reading.power is PowerState.OFF:
        return Note()
    if reading.power is not PowerState.ON:
        return Wait(f"power is {reading.power.value}: waits until it is on or off")
    return _off_first(now, seen)


def _off_first(now: Situation, seen: Past) -> Decision:
    """The first off: asked for politely, unless that is refused or not known here."""
    graceful = MachineCommand.GRACEFUL_OFF
    if seen.unsupported(graceful) is None and seen.refusals(graceful) < _GRACEFUL_TRIES:
        return _again(now, seen, graceful)
    if step := seen.unsupported(MachineCommand.FORCE_OFF):
        return End(AttemptOutcome.FAILED, f"this machine cannot be switched off: {step.detail}")
    return _send_or_give_up(now, seen, MachineCommand.FORCE_OFF, AttemptOutcome.FAILED)


def _send_or_give_up(
    now: Situation, seen: Past, command: MachineCommand, otherwise: AttemptOutcome
) -> Decision:
    """Send it, again after a while where it was refused, and so often at most."""
    refused = seen.refused(command)
    if refused is None:
        return Send(command)
    count = seen.refusals(command)
    if count >= now.limits.refused_tries:
        return End(otherwise, f"{command.value} refused {count} times: {refused.detail}")
    return _again(now, seen, command)


def _again(now: Situation, seen: Past, command: MachineCommand) -> Decision:
    if missing := seen.unsupported(command):
        return Wait(f"its BMC cannot do {command.value} ({missing.detail}): do it by hand")
    refused = seen.refused(command)
    if refused is not None and now.now < (refused.ended_at or refused.created_at) + now.limits.retry_s:
        return Wait(f"{command.value} was refused ({refused.detail}); tried again")
    return Send(command)


def _silence(now: Situation) -> str:
    if now.reading is None:
        return "the BMC was not asked yet"
    words = now.reading.detail or now.reading.problem.value or f"power {now.reading.power.value}"
    return f"BMC: {words}"


# ---------------------------------------------------------------- off


def _switch_off(now: Situation, seen: Past) -> Decision:
    graceful = seen.sent(MachineCommand.GRACEFUL_OFF)
    force = seen.sent(MachineCommand.FORCE_OFF)
    last = force or graceful
    reading = seen.fresh(last)
    if reading is not None and reading.power is PowerState.OFF:
        return Note()
    if force is None:
        assert graceful is not None
        if now.now < settled_at(graceful) + now.limits.graceful_off_s:
            return Wait("asked to shut down; waits until it is off")
        return _after_graceful(now, seen, reading)
    if now.now < settled_at(force) + now.limits.force_off_s:
        return Wait("power is cut; waits until it reads as off")
    if reading is None:
        return Wait(f"power was cut, and whether it is off cannot be read: {_silence(now)}")
    # It says that it is on. Should that be wrong, it must not stay off.
    return _again(now, seen, MachineCommand.ON)


def _after_graceful(now: Situation, seen: Past, reading: MachineReading | None) -> Decision:
    """It did not shut down in its time: its power is cut, where that still may be done."""
    stays_on = reading is not None and reading.power is PowerState.ON
    if not now.may_not and now.now < now.deadline:
        if not stays_on:
            return Wait(f"asked to shut down, and whether it is off cannot be read: {_silence(now)}")
        if seen.unsupported(MachineCommand.FORCE_OFF) is None:
            return _send_or_give_up(now, seen, MachineCommand.FORCE_OFF, AttemptOutcome.FAILED)
    if stays_on:
        why = now.may_not or "it does not shut down, and its power cannot be cut"
        return End(AttemptOutcome.FAILED, f"was asked to shut down and stayed on; {why}")
    return Wait(f"was asked to shut down, and may be off: {_silence(now)}")


def _while_off(now: Situation, seen: Past) -> Decision:
    assert seen.off_seen is not None
    reading = seen.fresh(seen.off_seen)
    if reading is None:
        return Wait(f"is off; {_silence(now)}")
    cut = seen.sent(MachineCommand.AC_CYCLE)
    if reading.power is not PowerState.OFF and (cut is None or seen.fresh(cut) is not None):
        return _not_off_any_more(now, seen, reading)
    preparing = _prepare(now, seen, reading)
    if preparing is not None:
        return preparing
    if now.now < seen.off_seen.created_at + now.limits.off_dwell_s:
        return Wait("is off; switched on in a moment")
    return _again(now, seen, MachineCommand.ON)


def _not_off_any_more(now: Situation, seen: Past, reading: MachineReading) -> Decision:
    """On without our `On`: by its mains coming back, by a person, or by a BMC that lies."""
    if reading.power is not PowerState.ON:
        return Wait(f"was off; power is {reading.power.value} now")
    if now.goal is Goal.REIMAGE:
        return _over(now, seen, AttemptOutcome.FAILED, "was switched on by somebody else in the middle")
    if now.now >= now.deadline:
        return End(AttemptOutcome.AMBIGUOUS, "went on without being told; no new boot by its deadline")
    return Wait("went on without being told; waits for its boot")


def _prepare(now: Situation, seen: Past, reading: MachineReading) -> Decision | None:
    """What is done to a machine that is off before it is switched on; None when that is over."""
    if now.goal is Goal.AC_CYCLE:
        return _cut_mains(now, seen)
    if now.goal is not Goal.REIMAGE:
        return None
    asked = seen.sent(MachineCommand.BOOT_ONCE)
    stop = now.may_not or (now.now >= now.deadline and "past its deadline") or ""
    if asked is None:
        refused = seen.refusals(MachineCommand.BOOT_ONCE) >= now.limits.refused_tries
        if stop or refused or seen.unsupported(MachineCommand.BOOT_ONCE):
            return None
        return _again(now, seen, MachineCommand.BOOT_ONCE)
    if reading.asked_at <= settled_at(asked):
        return Wait("the boot override is set; reads it back")
    if reading.boot is None and now.now < settled_at(asked) + now.limits.on_s and not stop:
        return Wait("the boot override cannot be read back yet")
    if reading.boot is not None and reading.boot.from_network_once and not stop:
        return None
    # Not what was asked for: it starts from its disk, with no override left behind.
    return _clear(now, seen, reading)


def _cut_mains(now: Situation, seen: Past) -> Decision | None:
    command = MachineCommand.AC_CYCLE
    done = seen.sent(command)
    if done is not None:
        # Its BMC starts anew: what it said before that is over, and it may be dark for minutes.
        over = now.now >= settled_at(done) + now.limits.off_dwell_s and seen.fresh(done) is not None
        late = now.now >= settled_at(done) + now.limits.dark_s
        return None if over or late else Wait("AC cycle; waits for the BMC")
    impossible = seen.unsupported(command) or seen.refusals(command) >= now.limits.refused_tries
    if impossible or now.may_not or now.now >= now.deadline:
        return None
    return _again(now, seen, command)


def _clear(now: Situation, seen: Past, reading: MachineReading | None) -> Decision | None:
    """Take the override away where it stands; None when it does not, or when it will not go."""
    command = MachineCommand.BOOT_CLEAR
    last = seen.sent(command)
    if reading is None or (last is not None and reading.asked_at <= settled_at(last)):
        return Wait("reads whether the boot override is gone")
    if reading.boot is not None and not reading.boot.stands:
        return None
    if (reading.boot is None and last is not None) or seen.unsupported(command) is not None:
        return None
    if seen.answered(command) >= MAX_CLEAR or seen.refusals(command) >= now.limits.refused_tries:
        return None
    return _again(now, seen, command)


# ---------------------------------------------------------------- on


def _switched_on(now: Situation, seen: Past) -> Decision:
    on = seen.sent(MachineCommand.ON)
    assert on is not None
    reading = seen.fresh(on)
    off = reading is not None and reading.power is PowerState.OFF
    late = now.now >= settled_at(on) + now.limits.on_s
    if off and late and seen.answered(MachineCommand.ON) < MAX_ON:
        return _again(now, seen, MachineCommand.ON)
    if seen.off_seen is None:
        return _never_off(now, seen, reading)
    if reading is None and (on.outcome is not StepOutcome.ACCEPTED or now.now < now.deadline):
        return Wait(f"was switched on; {_silence(now)}")
    is_on = reading is not None and reading.power is PowerState.ON
    failed = _why_failed(now, seen)
    if failed and (is_on or late):
        return _over(now, seen, AttemptOutcome.FAILED, f"{failed}; it stays off" if off else failed)
    if now.now >= now.deadline:
        words = "it stays off" if off else "no new boot was seen by its deadline"
        outcome = AttemptOutcome.FAILED if off else AttemptOutcome.AMBIGUOUS
        return _over(now, seen, outcome, f"switched on; {words}")
    if is_on and now.reading is not None:
        progress = f" ({now.reading.progress})" if now.reading.progress else ""
        return Wait(f"is on; waits for its boot{progress}")
    return Wait(f"was switched on; {_silence(now)}")


def _never_off(now: Situation, seen: Past, reading: MachineReading | None) -> Decision:
    """Power was cut, it never read as off, and it was sent `On` for the case that it was."""
    text = "its power was cut, and it never read as off"
    on = seen.sent(MachineCommand.ON)
    assert on is not None
    if reading is None and now.now < settled_at(on) + now.limits.on_s:
        return Wait(f"{text}; {_silence(now)}")
    return _over(now, seen, AttemptOutcome.FAILED, text)


def _why_failed(now: Situation, seen: Past) -> str:
    """What went wrong before it was switched on, so that no boot can be the one that was wanted."""
    if now.goal is Goal.AC_CYCLE and seen.sent(MachineCommand.AC_CYCLE) is None:
        step = seen.unsupported(MachineCommand.AC_CYCLE) or seen.refused(MachineCommand.AC_CYCLE)
        return f"no AC cycle: {step.detail if step is not None else now.may_not or 'no time was left'}"
    if now.goal is not Goal.REIMAGE:
        return ""
    asked = seen.sent(MachineCommand.BOOT_ONCE)
    if asked is None:
        step = seen.unsupported(MachineCommand.BOOT_ONCE) or seen.refused(MachineCommand.BOOT_ONCE)
        return f"no network boot: {step.detail if step is not None else now.may_not or 'no time was left'}"
    on = seen.sent(MachineCommand.ON)
    cleared = seen.sent(MachineCommand.BOOT_CLEAR)
    if cleared is not None and on is not None and cleared.created_at < on.created_at:
        return "the boot override did not read back as asked; it was started from its disk"
    return now.install_failed


def _over(now: Situation, seen: Past, outcome: AttemptOutcome, detail: str) -> Decision:
    """End, but never with a boot override left behind: the next boot would install again."""
    if now.goal is Goal.REIMAGE and seen.sent(MachineCommand.BOOT_ONCE) is not None:
        reading = seen.fresh(None)
        if reading is None and now.now < now.deadline + now.limits.dark_s:
            return Wait(f"{detail}; before it ends the boot override is looked at: {_silence(now)}")
        clearing = _clear(now, seen, reading) if reading is not None else None
        if clearing is not None:
            return clearing
        if reading is None or (reading.boot is not None and reading.boot.stands):
            stays = "the boot override may stand: its next boot may install again"
            return End(AttemptOutcome.FAILED, f"{detail}; {stays}")
    return End(outcome, detail)


def _booted(now: Situation, seen: Past) -> Decision:
    """A boot newer than the attempt has registered in Slurm."""
    assert now.booted_at is not None
    if now.goal is Goal.AC_CYCLE and (failed := seen.begun and _why_failed(now, seen)):
        return End(AttemptOutcome.FAILED, failed)
    cut = seen.sent(MachineCommand.AC_CYCLE)
    if cut is not None and cut.outcome is not StepOutcome.ACCEPTED:
        # Its checks decide; nothing else tells whether the mains side was cut.
        return End(AttemptOutcome.AMBIGUOUS, "a new boot was seen; whether its mains were cut is not known")
    if now.goal is not Goal.REIMAGE:
        how = "a new boot was seen" if seen.begun else "it booted before it was touched"
        return End(AttemptOutcome.SUCCEEDED, how)
    if failed := _why_failed(now, seen):
        return _over(now, seen, AttemptOutcome.FAILED, failed)
    if now.marker is Marker.PROVEN:
        return _over(now, seen, AttemptOutcome.SUCCEEDED, "a new boot of the image asked for was seen")
    if now.now < now.booted_at + now.limits.marker_s and now.now < now.deadline:
        return Wait("has booted; waits for the marker of its image")
    return _over(now, seen, AttemptOutcome.FAILED, f"booted, but not what was asked for: {now.marker_text}")
