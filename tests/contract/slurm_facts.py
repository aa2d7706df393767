"""What Slurm does, measured on daemons of 22.05, 24.11, 25.11 and 26.05, as seen by the port and by people.

A back end takes part by a subclass of `SlurmFacts` with a `rig` fixture (`tests.contract.rig`). The same
facts hold the simulated Slurm to the real one, for every release that it plays, and the real one to what was
measured.

Not here, as nothing of it shows at a node, a job or a reservation, or as no simulation has it:

- the environments of programs and hooks, overlaps and intervals of HealthCheckProgram: held by the live tests
  of the sandbox. What it drains at slurmd's start is a drain set during REBOOT_ISSUED, which is here.
- slurmdbd's events, and reasons under accounting storage: all of this is without it.
- signals to steps and batch scripts (`scancel -s`, `-b`, `-f`), `--time-min`, prologs without
  PrologFlags=Alloc, `nohold_on_prolog_fail`, who owns a job: the simulation has whole-node batch jobs and the
  recommended configuration.
- delays of a scheduler pass and of preemption, times of commands, sizes of their output: wall time.
- what a command line accepts or prints (lists of nodes, the Comment of a reservation, odd names
  and texts, forged records): held by the tests of the parser and of the scontrol back end.
- who may: only root acts here; the tests of the scontrol back end have the refusal.
"""

from tests.contract.facts_again import AgainFacts
from tests.contract.facts_jobs import JobFacts, PrologFacts
from tests.contract.facts_nodes import NodeFacts
from tests.contract.facts_outage import OutageFacts
from tests.contract.facts_reboot import RebootFacts, RebootTimeoutFacts
from tests.contract.facts_reservations import FenceFacts, FutureReservationFacts


class SlurmFacts(
    NodeFacts,
    RebootFacts,
    RebootTimeoutFacts,
    AgainFacts,
    OutageFacts,
    PrologFacts,
    JobFacts,
    FenceFacts,
    FutureReservationFacts,
):
    """All of them."""
