"""A slurmctld that runs in virtual time: the hands of people and clients, and what they see."""

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence

from slurm_lifecycle.core.model import JobView, NodeView, ReservationView
from slurm_lifecycle.simulation.slurmctld.jobs import Jobs
from slurm_lifecycle.simulation.slurmctld.nodes import Nodes
from slurm_lifecycle.simulation.slurmctld.reboots import Reboots
from slurm_lifecycle.simulation.slurmctld.records import Job
from slurm_lifecycle.simulation.slurmctld.release import Release
from slurm_lifecycle.simulation.slurmctld.reservations import Reservations
from slurm_lifecycle.simulation.slurmctld.scheduler import Scheduler
from slurm_lifecycle.simulation.slurmctld.settings import JobSpec, NodeSide, NodeSpec, SlurmConf
from slurm_lifecycle.simulation.slurmctld.state import State
from slurm_lifecycle.simulation.timeline import Timeline


class Slurmctld:
    """The simulated slurmctld, with the manners of the release that `conf` names.

    Every hand raises `SlurmRefused` where `scontrol` would exit 1. Whatever takes time (completing, reboots,
    pings, the scheduler) is an event on the timeline.

    Attributes:
        on_job_start: told of each job that starts.
        on_job_end: told of each run that ends, and how: completed, failed, cancelled, node_fail, requeued,
            timeout. `job.again` says whether the job goes back to the queue.
        on_node_change: told the name of a node whose view is another, or that is gone.
        on_reservation_change: told the name of a reservation that was made, changed or removed.
    """

    def __init__(
        self, timeline: Timeline, nodes: Sequence[NodeSpec], conf: SlurmConf, rng: random.Random
    ) -> None:
        self._state = State(timeline, nodes, conf, rng)
        self._jobs = Jobs(self._state)
        self._reboots = Reboots(self._state)
        self._nodes = Nodes(self._state, self._jobs, self._reboots)
        self._reservations = Reservations(self._state, self._jobs)
        self._scheduler = Scheduler(self._state, self._jobs, self._reservations)
        self.on_job_start: list[Callable[[Job], None]] = self._state.on_job_start
        self.on_job_end: list[Callable[[Job, str], None]] = self._state.on_job_end
        self.on_node_change: list[Callable[[str], None]] = self._state.on_node_change
        self.on_reservation_change: list[Callable[[str], None]] = self._state.on_reservation_change

    # ------------------------------------------------------------ configuration

    @property
    def side(self) -> NodeSide:
        """What it reaches on the nodes."""
        return self._state.side

    @side.setter
    def side(self, side: NodeSide) -> None:
        self._state.side = side

    @property
    def conf(self) -> SlurmConf:
        """slurm.conf."""
        return self._state.conf

    @property
    def manners(self) -> Release:
        """What its release does in its own way."""
        return self._state.release

    @property
    def now(self) -> float:
        """Its clock."""
        return self._state.timeline.now

    def reconfigure(self, **changes: float) -> None:
        """Other timeouts or ReturnToService, in force at once."""
        self._state.conf = dataclasses.replace(self._state.conf, **changes)  # type: ignore[arg-type]

    def restart(self) -> None:
        """It stops in order and starts again."""
        self._nodes.controller_restarts()

    def add_node(self, spec: NodeSpec) -> None:
        """An administrator adds a node to slurm.conf."""
        self._state.add_node(spec)

    def remove_node(self, name: str) -> None:
        """An administrator takes a node out of slurm.conf; what runs there is lost."""
        node = self._state.node(name)
        lost = self._jobs.detach(node)
        self._reservations.forget_node(node)
        self._state.drop_node(node)
        self._jobs.lost_node(lost)

    # ------------------------------------------------------------ from the nodes

    def registered(self, node: str, boot_time_s: float, gpus: int) -> None:
        """slurmd started, or answers again, and registered with the time of its boot and its GPUs."""
        found = self._state.nodes.get(node)
        if found is not None:
            self._nodes.registered(found, boot_time_s, gpus)

    def fell_silent(self, node: str) -> None:
        """slurmd does not answer from now on."""
        found = self._state.nodes.get(node)
        if found is not None:
            self._nodes.fell_silent(found)

    # ------------------------------------------------------------ nodes

    def update_node(self, name: str, state: str, reason: str = "", user: str = "root") -> None:
        """`State=`: DRAIN, DOWN, UNDRAIN, RESUME, IDLE or FAIL, of one node, of `a,b` or `ALL`."""
        del user
        self._nodes.update(name, state, reason)

    def set_reason(self, name: str, reason: str) -> None:
        """`Reason=` and nothing else."""
        self._nodes.set_reason(name, reason)

    def set_comment(self, name: str, text: str) -> None:
        """`Comment=`; leaves all else."""
        node = self._state.node(name)
        if node.comment != text:
            node.comment = text
            self._state.node_changed(node)

    def set_extra(self, name: str, text: str) -> None:
        """`Extra=`; leaves all else."""
        node = self._state.node(name)
        if node.extra != text:
            node.extra = text
            self._state.node_changed(node)

    def reboot(self, name: str, *, asap: bool = False, nextstate: str = "", reason: str = "") -> None:
        """`scontrol reboot`."""
        self._reboots.request(self._state.node(name), asap=asap, nextstate=nextstate, reason=reason)

    def cancel_reboot(self, name: str) -> None:
        """`scontrol cancel_reboot`."""
        self._reboots.cancel(self._state.node(name))

    # ------------------------------------------------------------ jobs

    def submit(self, spec: JobSpec) -> str:
        """`sbatch`; returns the job's id."""
        return self._jobs.submit(spec)

    def cancel(self, job_id: str) -> None:
        """`scancel`."""
        self._jobs.cancel(job_id)

    def suspend(self, job_id: str) -> None:
        """`scontrol suspend`."""
        self._jobs.suspend(job_id)

    def resume_job(self, job_id: str) -> None:
        """`scontrol resume`."""
        self._jobs.resume_job(job_id)

    def requeue(self, job_id: str, *, hold: bool = False) -> None:
        """`scontrol requeue`, or `requeuehold`."""
        self._jobs.requeue(job_id, hold=hold)

    def hold(self, job_id: str) -> None:
        """`scontrol hold`."""
        self._jobs.hold(job_id)

    def release(self, job_id: str) -> None:
        """`scontrol release`."""
        self._jobs.release(job_id)

    def update_job(
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
        self._jobs.update(
            job_id,
            start_now=start_now,
            exclude=exclude,
            nodelist=nodelist,
            reservation=reservation,
            nodes=nodes,
            requeue=requeue,
        )

    def job_exits(self, job_id: str, how: str) -> None:
        """The application ends by itself: `completed` or `failed`."""
        self._jobs.exits(job_id, how)

    # ------------------------------------------------------------ reservations

    def create_reservation(  # noqa: PLR0917 (as scontrol's line has them)
        self,
        name: str,
        nodes: Sequence[str],
        start_s: float,
        end_s: float,
        flags: Sequence[str] | frozenset[str] = (),
        users: Sequence[str] = ("root",),
    ) -> None:
        """`scontrol create reservation`; an infinite end is UNLIMITED."""
        self._reservations.create(name, nodes, start_s, end_s, flags=flags, users=users)

    def update_reservation(
        self,
        name: str,
        *,
        start_s: float | None = None,
        end_s: float | None = None,
        duration_s: float | None = None,
        nodes: Sequence[str] | None = None,
        add_nodes: Sequence[str] = (),
        remove_nodes: Sequence[str] = (),
        comment: str | None = None,
    ) -> None:
        """`scontrol update ReservationName=`; an end that is past ends it."""
        self._reservations.update(
            name,
            start_s=start_s,
            end_s=end_s,
            duration_s=duration_s,
            nodes=nodes,
            add_nodes=add_nodes,
            remove_nodes=remove_nodes,
            comment=comment,
        )

    def delete_reservation(self, name: str) -> None:
        """`scontrol delete ReservationName=`."""
        self._reservations.delete(name)

    # ------------------------------------------------------------ reads

    def views(self) -> Mapping[str, NodeView]:
        """All nodes, live: the mapping follows what happens; a view stays one object until it changes."""
        return self._state.views()

    def snapshot(self) -> Mapping[str, NodeView]:
        """All nodes as of now; this mapping never changes, and is the same one until a node does."""
        return self._state.snapshot()

    def view(self, name: str) -> NodeView:
        """One node."""
        node = self._state.node(name)
        return node.view or self._state.view(node)

    def jobs(self) -> Mapping[str, Job]:
        """All jobs that are not over, as they are; not to be changed."""
        return self._state.jobs

    def job_views(self) -> tuple[JobView, ...]:
        """All jobs as clients see them; the same tuple until one changes."""
        return self._state.job_views()

    def jobs_on(self, name: str) -> tuple[JobView, ...]:
        """The jobs that list a node."""
        node = self._state.node(name)
        return () if node.job is None else (self._state.job_view(node.job),)

    def reservations(self) -> Mapping[str, ReservationView]:
        """All reservations; a mapping given out never changes."""
        return self._state.reservations

    def in_service(self, name: str) -> bool:
        """Whether a user's job could start there, now or as soon as the node is free."""
        node = self._state.node(name)
        return self._state.in_service(node) and not self._reservations.maintain(node)
