"""What a BMC says may be of any type; what is written to it follows from what it said."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_lifecycle.core.machine import BootOverride, MachineCommand, PowerState
from slurm_lifecycle.redfish.connection import Nonsense
from slurm_lifecycle.redfish.parsing import (
    boot_fields,
    boot_override,
    boot_targets,
    parameter_values,
    power_state,
    settings_path,
    word,
)
from slurm_lifecycle.redfish.profiles import PROFILES

ENABLED, TARGET, MODE = (f"BootSourceOverride{one}" for one in ("Enabled", "Target", "Mode"))
ONCE, CLEAR = MachineCommand.BOOT_ONCE, MachineCommand.BOOT_CLEAR

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=10,
)
keys = st.sampled_from(
    ["PowerState", "Boot", ENABLED, TARGET, MODE, "@Redfish.Settings", "SettingsObject", "@odata.id",
     "Parameters", "Name", "AllowableValues", f"{TARGET}@Redfish.AllowableValues"]
)  # fmt: skip
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
resources = st.dictionaries(keys, json_values, max_size=6)


@patient
@given(resources)
def test_whatever_it_says_is_read_or_named_nonsense(resource: dict[str, Any]) -> None:
    if isinstance(resource.get("PowerState"), str):
        assert isinstance(power_state(resource), PowerState)
    else:
        with pytest.raises(Nonsense):
            power_state(resource)
    boot = boot_override(resource)
    for one in (boot.enabled, boot.target, boot.mode, word(resource, "PowerState")):
        assert len(one) <= 64
        assert one.isprintable()
    assert isinstance(parameter_values(resource), list)
    assert isinstance(settings_path(resource), str)
    assert all(isinstance(one, str) for one in boot_targets(resource))


@patient
@given(resources, st.sampled_from(sorted(PROFILES)), st.sampled_from([ONCE, CLEAR]))
def test_what_is_written_is_text_and_says_whether_it_is_enabled(
    boot: dict[str, Any], profile: str, command: MachineCommand
) -> None:
    fields = boot_fields(PROFILES[profile], command, boot)
    assert fields[ENABLED] == ("Once" if command is ONCE else "Disabled")
    assert fields[TARGET] == ("Pxe" if command is ONCE else "None")
    assert all(isinstance(one, str) for one in fields.values())


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("On", PowerState.ON),
        ("Off", PowerState.OFF),
        ("PoweringOn", PowerState.POWERING_ON),
        ("PoweringOff", PowerState.POWERING_OFF),
        ("Paused", PowerState.UNKNOWN),
        ("on", PowerState.UNKNOWN),
        ("", PowerState.UNKNOWN),
    ],
)
def test_words_of_the_power(text: str, state: PowerState) -> None:
    assert power_state({"PowerState": text}) is state


@pytest.mark.parametrize(
    ("profile", "command", "mode", "written"),
    [
        ("generic", ONCE, "UEFI", "UEFI"),
        ("generic", ONCE, "Legacy", "UEFI"),
        ("generic", CLEAR, "Legacy", "Legacy"),
        ("dgx_h100", ONCE, None, "UEFI"),
        ("dgx_h100", CLEAR, None, "UEFI"),
        ("supermicro_hgx", CLEAR, "UEFI", "UEFI"),
        ("dell", ONCE, "UEFI", None),
        ("dell", ONCE, "Legacy", "UEFI"),
        ("dell", CLEAR, "Legacy", None),
    ],
)
def test_the_mode_that_is_written(
    profile: str, command: MachineCommand, mode: str | None, written: str | None
) -> None:
    """Story 2008547: Supermicro wants all three; metal-operator#81: an iDRAC only where it differs."""
    assert boot_fields(PROFILES[profile], command, {MODE: mode}).get(MODE) == written


def test_a_machine_without_a_mode_is_written_none() -> None:
    for profile in PROFILES.values():
        assert MODE not in boot_fields(profile, ONCE, {ENABLED: "Disabled"})


@pytest.mark.parametrize(
    ("boot", "stands"),
    [
        (BootOverride("Once", "Pxe", "UEFI"), True),
        (BootOverride("Continuous", "Pxe", "UEFI"), True),
        (BootOverride("Disabled", "Pxe", "UEFI"), False),
        (BootOverride("Once", "None", "UEFI"), False),
        (BootOverride(), False),
    ],
)
def test_what_the_next_start_follows(boot: BootOverride, stands: bool) -> None:
    read = boot_override({ENABLED: boot.enabled, TARGET: boot.target, MODE: boot.mode})
    assert read == boot
    assert read.stands == stands
