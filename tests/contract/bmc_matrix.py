"""What the client says of each vice of each kind of BMC, as a Markdown table.

    python -m tests.contract.bmc_matrix [PROFILE ...]

Each cell: the problem that a reading tells, and what comes of a boot from the network and of switching off;
with a number where it did not carry out just as many resets as that says.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slurm_lifecycle.core.machine import MachineCommand
from slurm_lifecycle.redfish.profiles import PROFILES
from slurm_lifecycle.sandbox.bmc.certificates import Certificate, make_certificate
from slurm_lifecycle.sandbox.bmc.faults import KINDS
from slurm_lifecycle.sandbox.bmc.host import BmcHost
from tests.contract.bmc_rig import simulated

# Of drives and firmware: not what power and boot are about.
_OTHER = ("erase", "partial", "version", "dribble")
_PARAMETERS: dict[str, dict[str, object]] = {
    "timeout-after-accept": {"path": "/Systems/"},
    "timeout-before-accept": {"path": "/Systems/"},
    "drop-connection": {"path": "/Systems/"},
    "slow": {"seconds": 0.2},
    "boot-503": {"seconds": 3600},
    "expired-token": {"remaining": 1},
    "conflict-409": {"seconds": 3600},
}
FORMS = ("html", "truncated", "list", "types", "empty", "binary", "huge", "deep")


def vices() -> dict[str, dict[str, object]]:
    """Fault and parameters, by the name of the row."""
    rows = {name: _PARAMETERS.get(name, {}) for name in KINDS if not name.startswith((*_OTHER, "nonsense"))}
    return {**rows, **{f"nonsense {form}": {"form": form} for form in FORMS}}


def cell(host: BmcHost, certificate: Certificate, profile: str, vice: str) -> str:
    """What the client says of one vice in one profile."""
    with simulated(host, certificate, profile, read_timeout_s=0.5) as desk:
        assert desk.simulator is not None
        fault, parameters = vice.split(" ", maxsplit=1)[0], vices()[vice]
        desk.simulator.inject(fault, **parameters)  # type: ignore[arg-type]
        words = [desk.read().problem.value or "ok"]
        for command in (MachineCommand.BOOT_ONCE, MachineCommand.FORCE_OFF):
            words.append(desk.send(command).outcome.value)
        done = len(desk.simulator.posts())
        expected = (0, 1) if words[2] == "ambiguous" else (int(words[2] == "accepted"),)
        return f"{' / '.join(words)}{'' if done in expected else f' **{done} resets**'}"


def table(profiles: Sequence[str]) -> str:
    """All of it."""
    lines = [f"| vice | {' | '.join(profiles)} |", f"|---|{'---|' * len(profiles)}"]
    with tempfile.TemporaryDirectory() as folder:
        certificate = make_certificate(Path(folder, "tls"))
        with BmcHost(certificate) as host:
            for vice in vices():
                cells = [cell(host, certificate, profile, vice) for profile in profiles]
                if len(set(cells)) == 1:
                    cells[1:] = ["same"] * (len(cells) - 1)
                lines.append(f"| {vice} | {' | '.join(cells)} |")
                print(lines[-1], file=sys.stderr)
    return "\n".join(["A reading / boot from the network / off", "", *lines])


if __name__ == "__main__":
    print(table(sys.argv[1:] or sorted(PROFILES)))
