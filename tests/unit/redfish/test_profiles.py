"""Profiles are data that a machine is switched off by: what they name has to be there."""

import pytest

from slurm_lifecycle.redfish.profiles import PROFILES, Profile
from slurm_lifecycle.sandbox.bmc.profiles import PROFILES as SIMULATED
from slurm_lifecycle.service.bmc_config import PROFILE_NAMES


def test_the_configuration_knows_the_same_ones() -> None:
    assert set(PROFILE_NAMES) == set(PROFILES) == set(SIMULATED)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_what_power_depends_on_is_never_the_baseboard(profile: Profile) -> None:
    """infra-controller#6412: HGX_Baseboard_0 answers 503 while the host is off, and the host stayed off."""
    cycle = "" if profile.ac_cycle is None else profile.ac_cycle.path
    for path in (profile.system, profile.settings, profile.serial_at, cycle):
        assert "HGX_" not in path
        assert path == "" or path.startswith("/redfish/v1/")


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_no_kind_of_reset_does_two_things_by_itself(profile: Profile) -> None:
    """A cycle that is sent twice is two; off and on are not."""
    assert set(profile.graceful) <= {"GracefulShutdown"}
    assert set(profile.force) <= {"ForceOff"}
    assert set(profile.on) <= {"On", "ForceOn"}


def test_what_was_captured_of_each_machine() -> None:
    assert PROFILES["dgx_h100"].settings == "/redfish/v1/Systems/DGX/SD"
    assert PROFILES["dgx_h100"].ac_cycle is None
    assert PROFILES["gb200"].serial_at == "/redfish/v1/Chassis/Chassis_0"
    gb200 = PROFILES["gb200"].ac_cycle
    assert gb200 is not None
    assert gb200.needs_off
    assert [name for name, one in PROFILES.items() if one.mode_only_if_different] == ["dell"]
