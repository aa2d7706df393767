"""The rig over a real cluster."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_lifecycle.slurm.scontrol import ScontrolSlurm
from tests.contract.rig import WAIT_S, Timing
from tests.contract.tiny_cluster import CRED_EXPIRE_S, GPUS, KILL_WAIT_S, NODES, TinyCluster, wait_for

_SLEEPS = "sleep 6000"
# TERM goes to the sleep as well; the shell begins another one.
_IGNORES_TERM = "trap '' TERM; while :; do sleep 600; done"


@dataclass
class RealRig:
    """The back end and the hands of others, over one real cluster."""

    slurm: ScontrolSlurm
    cluster: TinyCluster
    release: str
    nodes: tuple[str, str] = NODES
    requeue_delay_s: float = CRED_EXPIRE_S + 1.0
    kill_wait_s: float = KILL_WAIT_S
    timing: Timing = Timing()  # noqa: RUF009  (frozen)

    # ------------------------------------------------------------ the cluster and time

    def configure(self, timing: Timing) -> None:
        if timing != self.timing:
            self.cluster.configure(timing)
            self.timing = timing

    def restart_controller(self) -> None:
        self.cluster.stop_controller()
        self.cluster.start_controller()

    def now(self) -> float:
        return time.time()

    def wait(self, what: Callable[[], bool], limit_s: float = WAIT_S) -> bool:
        return wait_for(what, limit_s)

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    # ------------------------------------------------------------ users

    def submit(
        self,
        node: str = "",
        *,
        reservation: str = "",
        held: bool = False,
        count: int = 1,
        requeue: bool = True,
        limit_s: int = 3600,
        exclude: str = "",
        ignores_term: bool = False,
    ) -> str:
        options = ["--exclusive", f"-N{count}", f"-t{limit_s // 60}"]
        options += ["-w", node] if node else []
        options += [f"--reservation={reservation}"] if reservation else []
        options += ["--hold"] if held else []
        options += [] if requeue else ["--no-requeue"]
        options += [f"--exclude={exclude}"] if exclude else []
        return self.sbatch(*options, f"--wrap={_IGNORES_TERM if ignores_term else _SLEEPS}")

    def sbatch(self, *options: str) -> str:
        """Any batch job."""
        run = self.cluster.run("sbatch", "--parsable", "--output=/dev/null", *options)
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    def suspend(self, job_id: str) -> None:
        assert self._scontrol("suspend", job_id) == ""

    def resume_job(self, job_id: str) -> None:
        assert self._scontrol("resume", job_id) == ""

    def cancel(self, job_id: str) -> None:
        self.cluster.run("scancel", job_id)

    def requeue_held(self, job_id: str) -> str:
        return self._scontrol("requeuehold", job_id)

    def update_job(
        self,
        job_id: str,
        *,
        start_now: bool = False,
        requeue: bool | None = None,
        reservation: str | None = None,
        exclude: str | None = None,
        nodelist: str | None = None,
        count: int | None = None,
        keep: str | None = None,
    ) -> str:
        changes = ["StartTime=now"] if start_now else []
        changes += [] if requeue is None else [f"Requeue={int(requeue)}"]
        changes += [] if reservation is None else [f"ReservationName={reservation}"]
        changes += [] if exclude is None else [f"ExcNodeList={exclude}"]
        changes += [] if nodelist is None else [f"ReqNodeList={nodelist}"]
        changes += [] if count is None else [f"NumNodes={count}"]
        changes += [] if keep is None else [f"NodeList={keep}"]
        return self._scontrol("update", f"JobId={job_id}", *changes)

    # ------------------------------------------------------------ administrators

    def person_drains(self, node: str, reason: str) -> str:
        return self._update(node, "State=DRAIN", f"Reason={reason}")

    def person_downs(self, node: str, reason: str) -> str:
        return self._update(node, "State=DOWN", f"Reason={reason}")

    def person_undrains(self, node: str) -> str:
        return self._update(node, "State=UNDRAIN")

    def person_resumes(self, node: str) -> str:
        return self._update(node, "State=RESUME")

    def person_sets_idle(self, node: str) -> str:
        return self._update(node, "State=IDLE")

    def person_writes_reason(self, node: str, reason: str) -> str:
        return self._update(node, f"Reason={reason}")

    def person_reboots(self, node: str, *, asap: bool = False, nextstate: str = "", reason: str = "") -> str:
        options = ["ASAP"] if asap else []
        options += [f"nextstate={nextstate}"] if nextstate else []
        options += [f"reason={reason}"] if reason else []
        return self._scontrol("reboot", *options, node)

    def person_cancels_reboot(self, node: str) -> str:
        return self._scontrol("cancel_reboot", node)

    def person_reserves(
        self,
        name: str,
        nodes: Sequence[str],
        *,
        start_in_s: int = 0,
        duration_s: int = 3600,
        flags: Sequence[str] = (),
        users: Sequence[str] = ("root",),
    ) -> str:
        options = [f"StartTime=now+{start_in_s}" if start_in_s else "StartTime=now"]
        options += [f"Duration={duration_s // 60}", f"Nodes={','.join(nodes)}", f"Users={','.join(users)}"]
        options += [f"Flags={','.join(flags)}"] if flags else []
        return self._scontrol("create", "reservation", f"ReservationName={name}", *options)

    def person_moves_reservation(
        self,
        name: str,
        *,
        start_in_s: int | None = None,
        end_in_s: int | None = None,
        duration_s: int | None = None,
        nodes: Sequence[str] = (),
        add: str = "",
        remove: str = "",
    ) -> str:
        changes = [] if start_in_s is None else [f"StartTime=now+{start_in_s}"]
        changes += [] if end_in_s is None else [f"EndTime=now+{end_in_s}" if end_in_s else "EndTime=now"]
        changes += [] if duration_s is None else [f"Duration={duration_s // 60}"]
        changes += [f"Nodes={','.join(nodes)}"] if nodes else []
        changes += [f"Nodes+={add}"] if add else []
        changes += [f"Nodes-={remove}"] if remove else []
        return self._scontrol("update", f"ReservationName={name}", *changes)

    def person_deletes_reservation(self, name: str) -> str:
        return self._scontrol("delete", f"ReservationName={name}")

    # ------------------------------------------------------------ the machines

    def slurmd_stops(self, node: str) -> None:
        self.cluster.stop_slurmd(node)

    def slurmd_starts(self, node: str, *, boot: bool) -> None:
        self.cluster.start_slurmd(node, boot=boot)

    def boot_hangs(self, node: str) -> None:
        self.cluster.hang_boots(node, True)

    def gpu_lost(self, node: str) -> None:
        self.cluster.set_gpus(node, GPUS - 1)

    def gpu_back(self, node: str) -> None:
        self.cluster.set_gpus(node, GPUS)

    def prolog_fails(self, node: str, *, drains_as: str = "") -> None:
        self.cluster.fail_prolog(node, drains_as)

    # ------------------------------------------------------------ between tests

    def restore(self) -> None:
        """No jobs, no reservations, both nodes in service without texts, slurm.conf as it was."""
        for node in self.nodes:
            self.cluster.hang_boots(node, False)
            self.cluster.fail_prolog(node, None)
        self.configure(Timing())
        if self.slurm.jobs():
            self.cluster.run("scancel", "--user=root")
        for node in self.nodes:
            self._mend(node)
        assert self.wait(lambda: self.slurm.jobs() == ()), self.slurm.jobs()
        for name in self.slurm.reservations():
            self.cluster.scontrol("delete", f"ReservationName={name}")
        assert self.wait(self._in_service), self.slurm.nodes()
        # Boot times are full seconds and reckoned anew at each registration: a boot just before a request
        # for one may count as what was asked for. So slurmd starts once more, as of the boot of this machine.
        for node in self._fresh():
            self.cluster.start_slurmd(node, boot=False)
        assert self.wait(lambda: not self._fresh() and self._in_service()), self.slurm.nodes()

    def _fresh(self) -> list[str]:
        recent = self.now() - 4.0
        return [name for name, node in self.slurm.nodes().items() if (node.boot_time_s or 0.0) > recent]

    def _mend(self, node: str) -> None:
        """Let slurmd answer, with all GPUs, and end a reboot."""
        self._update(node, "Comment=", "Extra=")
        if "REBOOT_REQUESTED" in self.slurm.node(node).state:
            self._scontrol("cancel_reboot", node)
        boot = "REBOOT_ISSUED" in self.slurm.node(node).state
        if boot or self.cluster.gpus(node) != GPUS or not self.cluster.runs_slurmd(node):
            self.cluster.set_gpus(node, GPUS)
            self.cluster.start_slurmd(node, boot=boot)

    def _in_service(self) -> bool:
        views = self.slurm.nodes().values()
        for view in views:
            if view.state & {"DRAIN", "DOWN"}:
                self._update(view.name, "State=RESUME")
        return all(view.state == {"IDLE"} for view in views)

    # ------------------------------------------------------------ how

    def _update(self, node: str, *changes: str) -> str:
        return self._scontrol("update", f"NodeName={node}", *changes)

    def _scontrol(self, *argv: str) -> str:
        run = self.cluster.run("scontrol", *argv)
        return (run.stderr.strip() or f"exit {run.returncode}") if run.returncode else ""
