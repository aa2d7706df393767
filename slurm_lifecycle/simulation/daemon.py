"""The real reconciler, executor, planner and store, wired over simulated ports and virtual time."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.core.planner import plan as make_plan
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.ports import Bmc, Clock, NodeCommand, Notifier, Provisioner, Slurm, Store, Tickets
from slurm_lifecycle.service.executor import Executor, Ports
from slurm_lifecycle.service.reconciler import Planner, Reconciler, TickResult
from slurm_lifecycle.service.without_bmc import WithoutBmc
from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.sql_store import SqlStore

HOST = "simulation"
# A store of its own for each run: the same name every time, so that the same seed leaves the same marks.
INSTANCE = "5111a7ed0000"


@dataclass(frozen=True, slots=True)
class Outside:
    """What the daemon reaches the simulated world through; each may be wrapped to cause trouble."""

    slurm: Slurm
    provisioner: Provisioner
    bmc: Bmc
    tickets: Tickets
    notifier: Notifier
    node_command: NodeCommand
    clock: Clock


class SimDaemon:
    """A daemon that can be killed and started again.

    Args:
        folder: where its store lies; on a tmpfs the runs are several times faster.
        wrap_store: puts something between the daemon and its store.
        planner: the real one, or a broken one that the oracles must catch.
        clock_of: makes the clock anew at each start, as a new process would.
    """

    def __init__(
        self,
        outside: Outside,
        policy: Policy,
        folder: Path,
        *,
        wrap_store: Callable[[Store], Store] = lambda store: store,
        planner: Planner = make_plan,
        clock_of: Callable[[], Clock] | None = None,
    ) -> None:
        """Open the store and start."""
        self.path = folder / "store.db"
        self.policy = policy
        self._outside = outside
        self._wrap_store = wrap_store
        self._planner = planner
        self._clock_of = clock_of or (lambda: outside.clock)
        self.store: SqlStore = self._open()
        self._reconciler = self._wire()

    def _open(self) -> SqlStore:
        return open_store(self.path, host=HOST, acting=True, instance=INSTANCE)

    def _wire(self) -> Reconciler:
        outside, store, clock = self._outside, self._wrap_store(self.store), self._clock_of()
        ports = Ports(
            slurm=outside.slurm,
            store=store,
            clock=clock,
            provisioner=outside.provisioner,
            bmc=outside.bmc,
            node_command=outside.node_command,
            tickets=outside.tickets,
            notifier=outside.notifier,
            history=self.store.history,
        )
        return Reconciler(
            slurm=outside.slurm,
            store=store,
            provisioner=outside.provisioner,
            bmc=outside.bmc,
            health=WithoutBmc(),
            executor=Executor(ports, self.policy),
            clock=clock,
            policy=self.policy,
            stopwatch=lambda: 0.0,
            planner=self._planner,
        )

    def tick(self) -> TickResult:
        """One tick of the real reconciler; raises what it raises."""
        return self._reconciler.tick()

    def restart(self, policy: Policy | None = None) -> None:
        """What was in memory is gone; the store and the world are as they were."""
        self.store.close()
        self.policy = policy or self.policy
        self.store = self._open()
        self._reconciler = self._wire()

    def ask(self, verb: Verb, subject: str, actor: str, text: str, now: float) -> int:
        """A person's request through the store, as the CLI puts it there."""
        return self.store.add_request(verb, subject, actor, text, now)

    def close(self) -> None:
        """Let the store go."""
        self.store.close()
