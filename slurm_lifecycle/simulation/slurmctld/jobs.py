"""Jobs: from the queue to a start, an end, and back to the queue."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_lifecycle.simulation.slurmctld.records import ALLOCATED, COMPLETING, Job, Node
from slurm_lifecycle.simulation.slurmctld.settings import JobSpec, SlurmRefused, user_name
from slurm_lifecycle.simulation.slurmctld.state import State

LAUNCH_FAILED = "launch failed requeued held"
REQUEUED_HELD = "job requeued in held state"
# From the end of the work to a free node, TERM obeyed (measured: 0.5 s).
_COMPLETES_S = (0.3, 0.7)
_NEVER_ENDS = (math.inf,)
WAITING = frozenset({"PENDING", "RESV_DEL_HOLD"})


@dataclass(frozen=True, slots=True)
class Loss:
    """A job that lost a node, running or completing there."""

    job: Job
    node: str
    completing: bool


class Jobs:
    """The job part.

    Attributes:
        pending: jobs in the queue, in the order of their submission.
        freed: told of a node that a job has left.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.pending: dict[str, Job] = {}
        self.freed: Callable[[Node], None] = lambda _node: None

    # ------------------------------------------------------------ users

    def submit(self, spec: JobSpec) -> str:
        """Put a job into the queue."""
        state = self._state
        members = state.partitions.get(spec.partition)
        if members is None:
            raise SlurmRefused(f"invalid partition specified: {spec.partition}")
        wanted = state.mask_of([state.node(name).name for name in spec.nodelist])
        if spec.nodes_min > members.bit_count() or wanted & ~members or spec.nodes_min < 1:
            raise SlurmRefused("Requested node configuration is not available")
        self._check_reservation(spec)
        job = Job(str(state.next_job), spec, state.timeline.now)
        state.next_job += 1
        state.jobs[job.id] = self.pending[job.id] = job
        state.queue_changed()
        state.kick()
        return job.id

    def _check_reservation(self, spec: JobSpec) -> None:
        if not spec.reservation:
            return
        reservation = self._state.reservations.get(spec.reservation)
        if reservation is None:
            raise SlurmRefused("Requested reservation is invalid")
        if user_name(spec.uid) not in reservation.users:
            raise SlurmRefused("Access denied to requested reservation")

    def cancel(self, job_id: str) -> None:
        """`scancel`."""
        job = self._state.job(job_id)
        if job.state in WAITING:
            self._leave(job)
            self._tell_end(job, "cancelled")
        elif job.state == "COMPLETING":
            job.again = False
        else:
            self.end(job, "cancelled")

    def suspend(self, job_id: str) -> None:
        """`scontrol suspend`: its nodes look idle from now on (measured)."""
        job = self._state.job(job_id)
        if job.state != "RUNNING":
            raise SlurmRefused("Invalid job state specified")
        now = self._state.timeline.now
        job.limit_left_s = job.limit.at - now if job.limit else math.inf
        self._stop_limit(job)
        job.state = "SUSPENDED"
        self._state.job_changed(job)
        for name in job.nodes:
            node = self._state.nodes[name]
            node.flags &= ~ALLOCATED
            self._state.node_changed(node)

    def resume_job(self, job_id: str) -> None:
        """`scontrol resume` of a suspended job."""
        job = self._state.job(job_id)
        if job.state != "SUSPENDED":
            raise SlurmRefused("Invalid job state specified")
        job.state = "RUNNING"
        self._state.job_changed(job)
        self._arm_limit(job, job.limit_left_s)
        for name in job.nodes:
            node = self._state.nodes[name]
            node.flags |= ALLOCATED
            self._state.node_changed(node)

    def requeue(self, job_id: str, *, hold: bool = False) -> None:
        """`scontrol requeue`, or `requeuehold`."""
        job = self._state.job(job_id)
        if job.state in WAITING:
            raise SlurmRefused("Job is pending execution")
        if job.state == "COMPLETING":
            raise SlurmRefused("Job is in transitional state")
        if not job.spec.requeue:
            raise SlurmRefused("Requested operation is presently disabled")
        if hold:
            job.held, job.next_reason = True, REQUEUED_HELD
        self.end(job, "requeued", again=True)

    def hold(self, job_id: str) -> None:
        """`scontrol hold`."""
        job = self._state.job(job_id)
        job.held = True
        if job.state in WAITING:
            self._say(job, "JobHeldUser")

    def release(self, job_id: str) -> None:
        """`scontrol release`; harmless for a job that runs."""
        job = self._state.job(job_id)
        job.held = False
        if job.state == "RESV_DEL_HOLD":
            job.state = "PENDING"
        if job.state in WAITING:
            self._say(job, "")
            self._state.kick()

    def update(
        self,
        job_id: str,
        *,
        start_now: bool = False,
        exclude: Sequence[str] | frozenset[str] | None = None,
        nodelist: Sequence[str] | None = None,
        reservation: str | None = None,
        nodes: Sequence[str] | None = None,
        requeue: bool | None = None,
    ) -> None:
        """`scontrol update JobId=`; `nodes` are those that a running job keeps."""
        state = self._state
        job = state.job(job_id)
        if job.state not in WAITING and (exclude is not None or nodelist is not None):
            raise SlurmRefused("Job is no longer pending execution")
        for name in (*(exclude or ()), *(nodelist or ())):
            state.node(name)
        changes: dict[str, object] = {}
        if exclude is not None:
            changes["exclude"] = frozenset(exclude)
        if nodelist is not None:
            changes["nodelist"] = tuple(nodelist)
        if reservation is not None:
            changes["reservation"] = reservation
        if requeue is not None:
            changes["requeue"] = requeue
        if changes:
            spec = dataclasses.replace(job.spec, **changes)  # type: ignore[arg-type]
            self._check_reservation(spec)
            job.spec = spec
        if nodes is not None:
            self._shrink(job, tuple(nodes))
        if start_now and job.state in WAITING:
            # While it still completes, the requeue delay overwrites this (measured).
            job.begin_at = state.timeline.now
        state.kick()

    def _shrink(self, job: Job, kept: tuple[str, ...]) -> None:
        """Drop nodes of a running job; what runs there is killed at once (measured)."""
        state = self._state
        if job.state != "RUNNING":
            raise SlurmRefused("Job is no longer running")
        if not kept or job.nodes[0] not in kept or not set(kept) <= set(job.nodes):
            # The batch script runs on the first.
            raise SlurmRefused("Invalid node name specified")
        dropped = [state.nodes[name] for name in job.nodes if name not in kept]
        job.nodes = tuple(name for name in job.nodes if name in kept)
        job.mask = state.mask_of(job.nodes)
        state.job_changed(job)
        for node in dropped:
            job.left[node.name] = node
            state.end_on_node(node)
            state.timeline.after(state.rng.uniform(*_COMPLETES_S), self._leaver(node, job))

    def _leaver(self, node: Node, job: Job) -> Callable[[], None]:
        def leave() -> None:
            if node.job is job and node.name not in job.nodes and node.silent_since is None:
                self._leaves(node, job)

        return leave

    # ------------------------------------------------------------ start and end

    def start(self, job: Job, nodes: list[Node]) -> None:
        """Start a job on nodes that are free, as far as their prologs let it."""
        state = self._state
        del self.pending[job.id]
        job.state = "RUNNING"
        job.nodes = tuple(node.name for node in nodes)
        job.mask = 0
        job.started_at = state.timeline.now
        job.reason = ""
        for node in nodes:
            job.mask |= node.bit
            state.take_node(node, job)
        state.job_changed(job)
        self._arm_limit(job, job.spec.time_limit_s)
        failed = [node for node in nodes if not state.side.prolog(node.name, job.id)]
        if not failed:
            for told in state.on_job_start:
                told(job)
            return
        for node in failed:
            state.drain_by_slurm(node, "Prolog error")
            state.node_changed(node)
        if job.state != "RUNNING":
            return
        if job.spec.requeue:
            job.held, job.next_reason = True, LAUNCH_FAILED
        self.end(job, "requeued" if job.spec.requeue else "cancelled", again=job.spec.requeue)

    def exits(self, job_id: str, how: str) -> None:
        """The application ends by itself."""
        job = self._state.jobs.get(job_id)
        if job is not None and job.state == "RUNNING":
            self.end(job, how, by_itself=True)

    def end(self, job: Job, how: str, *, again: bool = False, by_itself: bool = False) -> None:
        """A run is over; its nodes complete for a while."""
        state = self._state
        self._stop_limit(job)
        job.state, job.again, job.how = "COMPLETING", again, how
        if again:
            job.restarts += 1
        held = [state.nodes[name] for name in job.nodes if name in state.nodes]
        # Nodes that it was shrunk away from may still be among those that it has to leave.
        job.left = {node.name: node for node in (*held, *job.left.values()) if node.job is job}
        slow = job.spec.ignores_term and not by_itself
        wait_s = state.conf.kill_wait_s if slow else 0.0
        job.killed_at = state.timeline.now + wait_s + state.rng.uniform(*_COMPLETES_S)
        state.timeline.at(job.killed_at, lambda: self._killed(job))
        state.job_changed(job)
        for node in held:
            if node.job is job:
                state.end_on_node(node)
        self._tell_end(job, how)

    def _tell_end(self, job: Job, how: str) -> None:
        for told in self._state.on_job_end:
            told(job, how)

    def _killed(self, job: Job) -> None:
        """Nothing of it runs any more; a node that does not answer cannot say so, and goes on completing."""
        for node in list(job.left.values()):
            if node.silent_since is None:
                self._free(node, job)
        self._state.job_changed(job)
        if not job.left:
            self._over(job)

    def _free(self, node: Node, job: Job) -> None:
        """A node is rid of a job."""
        state = self._state
        if not state.side.epilog(node.name, job.id):
            state.drain_by_slurm(node, "Epilog error")
        job.left.pop(node.name, None)
        state.lose_job(node)
        state.node_changed(node)
        self.freed(node)

    def node_answers(self, node: Node) -> None:
        """A node that did not answer does: what completed there is over."""
        job = node.job
        if job is None or not node.flags & COMPLETING or job.killed_at > self._state.timeline.now:
            return
        self._leaves(node, job)

    def _leaves(self, node: Node, job: Job) -> None:
        """One node is rid of it, maybe the last."""
        self._free(node, job)
        self._state.job_changed(job)
        if job.state == "COMPLETING" and not job.left and job.killed_at <= self._state.timeline.now:
            self._over(job)

    def detach(self, node: Node) -> Loss | None:
        """A node goes down, or boots, under its job: it does not hold it any more.

        The caller tells of the node's change, and then gives what it got to `lost_node`.
        """
        if node.job is None:
            return None
        loss = Loss(node.job, node.name, bool(node.flags & COMPLETING))
        self._state.lose_job(node)
        return loss

    def lost_node(self, loss: Loss | None) -> None:
        """End the run, or let the job complete without the node."""
        if loss is None:
            return
        job = loss.job
        if not loss.completing:
            if job.state == "SUSPENDED":
                # Slurm suspends by a priority of 0, and a job that waits with it is held (measured on 22.05).
                job.held, job.next_reason = True, "JobHeldAdmin"
            self.end(job, "node_fail", again=job.spec.requeue)
            return
        job.left.pop(loss.node, None)
        self._state.job_changed(job)
        if job.state == "COMPLETING" and not job.left and job.killed_at <= self._state.timeline.now:
            self._over(job)

    def _over(self, job: Job) -> None:
        """It has left all its nodes."""
        state = self._state
        if not job.again:
            del state.jobs[job.id]
            state.queue_changed()
            return
        job.state, job.nodes, job.mask = "PENDING", (), 0
        delay_s = state.conf.requeue_delay_s
        job.begin_at = state.timeline.now + delay_s
        job.reason = (job.next_reason or "JobHeldUser") if job.held else "BeginTime"
        job.next_reason = ""
        self.pending[job.id] = job
        state.job_changed(job)
        state.timeline.at(job.begin_at, state.kick)

    def _leave(self, job: Job) -> None:
        self.pending.pop(job.id, None)
        self._state.jobs.pop(job.id, None)
        self._state.queue_changed()

    # ------------------------------------------------------------ limits, reasons, reservations

    def _arm_limit(self, job: Job, seconds: float) -> None:
        if seconds not in _NEVER_ENDS:
            job.limit = self._state.timeline.after(seconds, lambda: self.end(job, "timeout"))

    def _stop_limit(self, job: Job) -> None:
        if job.limit is not None:
            job.limit.cancel()
            job.limit = None

    def _say(self, job: Job, reason: str) -> None:
        if job.reason != reason:
            job.reason = reason
            self._state.job_changed(job)

    def waits_for(self, job: Job, reason: str) -> None:
        """Why it does not start."""
        self._say(job, reason)

    def of_reservation(self, name: str) -> list[Job]:
        """Jobs, running or pending, that belong to a reservation."""
        return [
            job
            for job in self._state.jobs.values()
            if job.spec.reservation == name and job.state != "COMPLETING"
        ]

    def lose_reservation(self, name: str, *, live_on: bool) -> None:
        """A reservation ended by itself: running jobs end, pending ones are held (measured)."""
        for job in self.of_reservation(name):
            if job.state in WAITING:
                job.state, job.held = "RESV_DEL_HOLD", True
                job.reason = "ReservationDeleted"
                job.spec = dataclasses.replace(job.spec, reservation="")
                self._state.job_changed(job)
            elif not live_on:
                self.end(job, "timeout")
