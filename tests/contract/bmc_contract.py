"""What every BMC has to do for a power cycle and a boot from the network; the same over each of them."""

from slurm_lifecycle.core.machine import BmcProblem, MachineCommand, PowerState, StepOutcome
from tests.contract.bmc_rig import Desk


class BmcContract:
    """Each test begins with the machine on. Nothing here is particular to one BMC."""

    def test_it_tells_its_power_and_whose_machine_it_is(self, desk: Desk) -> None:
        reading = desk.read()
        assert (reading.problem, reading.power) == (BmcProblem.NONE, PowerState.ON)
        assert reading.serial == desk.settings.serial

    def test_power_goes_off_and_on(self, desk: Desk) -> None:
        for command, power in (
            (MachineCommand.GRACEFUL_OFF, PowerState.OFF),
            (MachineCommand.ON, PowerState.ON),
            (MachineCommand.FORCE_OFF, PowerState.OFF),
            (MachineCommand.ON, PowerState.ON),
        ):
            assert desk.send(command).outcome is StepOutcome.ACCEPTED
            assert desk.wait(power), command

    def test_what_the_next_start_follows_is_what_is_read_back(self, desk: Desk) -> None:
        assert desk.send(MachineCommand.FORCE_OFF).outcome is StepOutcome.ACCEPTED
        assert desk.wait(PowerState.OFF)
        assert desk.send(MachineCommand.BOOT_ONCE).outcome is StepOutcome.ACCEPTED
        boot = desk.read().boot
        assert boot is not None
        assert boot.stands
        assert boot.target in ("Pxe", "UefiHttp")
        assert desk.send(MachineCommand.ON).outcome is StepOutcome.ACCEPTED
        assert desk.wait(PowerState.ON)

    def test_commands_that_are_none_of_a_bmc_are_not_sent(self, desk: Desk) -> None:
        assert desk.send(MachineCommand.STAGE).outcome is StepOutcome.UNSUPPORTED
        assert desk.send(MachineCommand.OFF_SEEN).outcome is StepOutcome.UNSUPPORTED
        assert desk.read().power is PowerState.ON

    def test_the_bmc_of_another_machine_is_never_sent_anything(self, desk: Desk) -> None:
        other = desk.with_settings(serial="SOMEBODY-ELSE")
        reading = other.read()
        assert reading.problem is BmcProblem.WRONG_MACHINE
        sent = other.send(MachineCommand.FORCE_OFF)
        assert sent.outcome is StepOutcome.REFUSED
        assert "on record is" in sent.detail
        assert desk.read().power is PowerState.ON

    def test_one_without_a_serial_on_record_is_read_and_never_sent_anything(self, desk: Desk) -> None:
        unknown = desk.with_settings(serial="")
        assert unknown.read().problem is BmcProblem.NONE
        assert unknown.send(MachineCommand.FORCE_OFF).outcome is StepOutcome.REFUSED
        assert desk.read().power is PowerState.ON

    def test_a_certificate_by_nobody_we_trust_ends_it(self, desk: Desk) -> None:
        strict = desk.with_settings(ca_file="")
        reading = strict.read()
        assert reading.problem is BmcProblem.TLS
        assert "\n" not in reading.detail
        assert strict.send(MachineCommand.FORCE_OFF).outcome is StepOutcome.REFUSED
        assert desk.read().power is PowerState.ON
