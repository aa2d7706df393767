"""The journal in SQLite: what the daemon reads before it decides and writes before it acts."""

from pathlib import Path
from types import TracebackType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from slurm_lifecycle.core.machine import PhoneHome, StepOutcome
from slurm_lifecycle.core.model import AttemptOutcome, Identity, Records, Request, Verb
from slurm_lifecycle.core.plan import Event, NodeStatus, Plan
from slurm_lifecycle.errors import InvariantViolation, NotTheActor, StoreError
from slurm_lifecycle.store import reads, rows, schema, writes
from slurm_lifecycle.store.copying import copy_to
from slurm_lifecycle.store.engine import reading, translated, writing
from slurm_lifecycle.store.locking import ActorLock
from slurm_lifecycle.store.queries import StoreQueries
from slurm_lifecycle.store.retention import Pruned, prune
from slurm_lifecycle.store.status_changes import status_changes
from slurm_lifecycle.store.watching import FileWatch

_WHO_ACTS = sa.select(schema.meta).where(
    sa.or_(schema.meta.c.key == "daemon_host", schema.meta.c.key == "generation")
)


class SqlStore(StoreQueries):
    """A store, opened by `opening.open_store`. Implements `ports.Store`.

    Attributes:
        path: the SQLite file.
        upgraded_from: the copy made before an upgrade at this opening, or None.
    """

    def __init__(
        self,
        engine: sa.Engine,
        path: Path,
        identity: Identity,
        *,
        lock: ActorLock | None,
        read_only: bool = False,
        upgraded_from: Path | None = None,
    ) -> None:
        """Use `open_store`; this only keeps what it made."""
        super().__init__(engine, path)
        self._identity = identity
        self._lock = lock
        self._read_only = read_only
        self._statuses: tuple[NodeStatus, ...] | None = None
        self._closed = reads.ClosedIncidents(keep=lock is not None)
        self._watch = FileWatch(path) if lock is not None else None
        self.upgraded_from = upgraded_from

    def __enter__(self) -> "SqlStore":
        """The store itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close all connections and let the lock go."""
        self._engine.dispose()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def identity(self) -> Identity:
        """Which instance this store is, as it was when it was opened (or claimed)."""
        return self._identity

    def load(self, now: float) -> Records:
        """What decisions need, as one consistent view.

        Raises:
            NotTheActor: the file is not the one that was opened to act on.
        """
        if self._watch is not None:
            self._watch.check()
        with reading(self._engine, self.path) as connection:
            incidents = reads.open_incidents(connection)
            closed = self._closed.read(connection, now)
            attempts = reads.attempts(connection, now)
            steps = reads.steps(connection)
            homes = reads.phoned_home(connection)
            findings = reads.open_findings(connection)
            fences = reads.open_fences(connection)
            trips = reads.trips(connection, now)
            hits = reads.hits(connection, now)
            holds = reads.holds(connection)
            requests = reads.pending_requests(connection)
        # Sorted, so that a decision never hangs on the order in which SQLite happened to find the rows.
        return Records(
            incidents={item.node: item for item in sorted(incidents, key=lambda item: item.node)},
            closed_incidents=closed,
            attempts=tuple(sorted(attempts, key=lambda item: (item.created_at, item.op_id))),
            steps=steps,
            homes={item.op_id: item for item in homes},
            findings=tuple(sorted(findings, key=lambda item: (item.node, item.code, item.component))),
            fences={item.name: item for item in sorted(fences, key=lambda item: item.name)},
            trips=tuple(sorted(trips, key=lambda item: (item.tripped_at, item.scope))),
            hits=tuple(sorted(hits, key=lambda item: (item.at, item.node, item.code))),
            holds={item.node: item for item in sorted(holds, key=lambda item: item.node)},
            requests=tuple(sorted(requests, key=lambda item: item.id)),
        )

    def apply(self, plan: Plan, now: float) -> None:
        """Write a plan's rows; all of them or none.

        Raises:
            InvariantViolation: a row breaks a rule that the database enforces.
            NotTheActor: somebody else acts on this store by now.
        """
        if self._statuses is None:
            self._statuses = self.node_statuses()
        changed, gone = status_changes(self._statuses, plan.statuses)
        if plan.settled and not changed and not gone:
            return
        with self._acting() as connection:
            writes.write_rows(connection, plan, now)
            writes.write_statuses(connection, changed, gone, now)
            for incident in plan.incidents:
                self._closed.forget(incident.id)
        # Only after the commit: what was rolled back has to be written by the next tick.
        if plan.statuses:
            self._statuses = plan.statuses

    def mark_sent(self, op_id: str) -> None:
        """The effect was handed over."""
        statement = sa.update(schema.attempt).where(schema.attempt.c.op_id == op_id).values(sent=True)
        with self._acting() as connection:
            if connection.execute(statement).rowcount != 1:
                raise InvariantViolation(f"attempt {op_id} is not on record, so nothing may be sent for it")

    def resolve(self, op_id: str, outcome: AttemptOutcome, detail: str, now: float) -> None:
        """End an attempt at the edge; one that has ended already keeps its end."""
        table = schema.attempt
        with self._acting() as connection:
            found = rows.ATTEMPT.read(connection, table.c.op_id == op_id)
            if not found:
                raise InvariantViolation(f"attempt {op_id} is not on record, so it cannot end")
            attempt = found[0]
            if attempt.outcome is not None:
                return
            values: dict[str, Any] = {"outcome": outcome.value, "ended_at": now, "detail": detail}
            connection.execute(sa.update(table).where(table.c.op_id == op_id).values(**values))
            text = f"{attempt.rung.value} {attempt.n}: {outcome.value} {detail}".rstrip()
            event = Event(now, attempt.node, "attempt", text, incident_id=attempt.incident_id)
            connection.execute(sa.insert(schema.event), rows.EVENT.encode_all((event,)))

    def end_step(self, op_id: str, n: int, outcome: StepOutcome, detail: str, now: float) -> None:
        """What came of sending one command; one that has an outcome already keeps it."""
        table = schema.attempt_step
        here = sa.and_(table.c.op_id == op_id, table.c.n == n)
        with self._acting() as connection:
            found = rows.STEP.read(connection, here)
            if not found:
                raise InvariantViolation(f"step {n} of {op_id} is not on record, so it cannot end")
            if found[0].outcome is not None:
                return
            values: dict[str, Any] = {"outcome": outcome.value, "ended_at": now, "detail": detail}
            connection.execute(sa.update(table).where(here).values(**values))
            attempt = rows.ATTEMPT.read(connection, schema.attempt.c.op_id == op_id)[0]
            what = f"{attempt.rung.value} {attempt.n}: {found[0].command.value}"
            text = f"{what} {outcome.value} {detail}".rstrip()
            event = Event(now, attempt.node, "step", text, incident_id=attempt.incident_id)
            connection.execute(sa.insert(schema.event), rows.EVENT.encode_all((event,)))

    def note_home(self, home: PhoneHome) -> bool:
        """A node phoned home; False where one did for that operation before. Needs no acting opening."""
        self._check_writable()
        statement = insert(schema.phone_home).on_conflict_do_nothing()
        with writing(self._engine, self.path) as connection:
            return connection.execute(statement, rows.HOME.encode(home)).rowcount == 1

    def note_tick(self, now: float, mode: str) -> None:
        """A tick was finished; `status` shows how long ago."""
        with self._acting() as connection:
            writes.put_meta(connection, {"tick_at": repr(now), "tick_mode": mode})

    def add_request(self, verb: Verb, subject: str, actor: str, text: str, now: float) -> int:
        """Put a person's request into the inbox; returns its id. Needs no acting opening."""
        self._check_writable()
        request = Request(0, now, actor, verb, subject, text)
        row = {key: value for key, value in rows.REQUEST.encode(request).items() if key != "id"}
        with writing(self._engine, self.path) as connection:
            key = connection.execute(sa.insert(schema.request), row).inserted_primary_key
            assert key is not None
            return int(key[0])

    def claim(
        self, host: str, *, actor: str, now: float, took_over: str = "", generation: int = 0
    ) -> Identity:
        """Make this store the one of `host`'s daemon; no daemon may run on it.

        Args:
            host: the host whose daemon acts from now on.
            actor: who says so, for the history.
            now: when.
            took_over: instance of a lost store whose marks on the nodes are this store's from now on.
            generation: that of the claim on the cluster; this store's becomes at least that, so that the next
                acting opening is above it.

        Raises:
            NotTheActor: a daemon holds the store.
        """
        self._check_writable()
        lock = ActorLock(self.path, host) if self._lock is None else None
        before = self._identity
        taken = took_over or before.took_over
        text = f"claimed for {host}, was {before.host or 'nobody'}" + (
            f", takes over {took_over}" * bool(took_over)
        )
        event = Event(now, "", "claim", text, actor)
        try:
            with writing(self._engine, self.path) as connection:
                raised = max(before.generation, generation)
                values = {"daemon_host": host, "took_over": taken, "generation": str(raised)}
                writes.put_meta(connection, values)
                connection.execute(sa.insert(schema.event), rows.EVENT.encode_all((event,)))
        finally:
            if lock is not None:
                lock.release()
        self._identity = Identity(before.instance, host, max(before.generation, generation), taken)
        return self._identity

    def backup(self, destination: Path | str) -> None:
        """Write a consistent copy while the store is in use; it appears complete or not at all."""
        target = Path(destination)
        try:
            with translated(target):
                copy_to(self._engine, target)
        except OSError as error:
            raise StoreError(
                f"copy {target} cannot be written ({error.strerror}): check its folder"
            ) from error

    def prune(self, now: float) -> Pruned:
        """Forget what is older than its retention (see `store.retention`)."""
        with self._acting() as connection:
            return prune(connection, now)

    def _acting(self) -> "_Acting":
        if self._lock is None:
            raise NotTheActor(f"store {self.path} was not opened to act: only the daemon may write this")
        if self._watch is not None:
            self._watch.check()
        return _Acting(self._engine, self.path, self._identity)

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreError(f"store {self.path} was opened to read only: open it for requests")


class _Acting:
    """A transaction of the actor, which proves first that it still is the actor.

    The lock alone does not tell: somebody may have removed the lock file or claimed the store for another
    host on a shared disk.
    """

    def __init__(self, engine: sa.Engine, path: Path, identity: Identity) -> None:
        self._context = writing(engine, path)
        self._path = path
        self._identity = identity

    def __enter__(self) -> sa.Connection:
        connection = self._context.__enter__()
        try:
            self._check(connection)
        except BaseException as error:
            self._context.__exit__(type(error), error, error.__traceback__)
            raise
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._context.__exit__(kind, error, trace)

    def _check(self, connection: sa.Connection) -> None:
        found = {str(key): str(value) for key, value in connection.execute(_WHO_ACTS)}
        mine = {"daemon_host": self._identity.host, "generation": str(self._identity.generation)}
        if found != mine:
            raise NotTheActor(
                f"store {self._path} is acted on by another daemon since (host {found.get('daemon_host')}, "
                f"opening {found.get('generation')}): this one must stop"
            )
