"""Carries verdicts and drains to Slurm in the background, with patience: slurmctld may be away for long."""

from __future__ import annotations

import os
import random
import time
from typing import Callable, FrozenSet, Iterable, List, Optional, Tuple

from slurm_lifecycle.node import drain
from slurm_lifecycle.node.child import Child, Result
from slurm_lifecycle.node.config import AgentConfig
from slurm_lifecycle.node.findings import Finding
from slurm_lifecycle.node.image_marker import read_marker
from slurm_lifecycle.node.release import Release, ReleaseSession, refused_jobs, release
from slurm_lifecycle.node.slurm_node import UnknownNodeError
from slurm_lifecycle.node.slurm_session import (
    Report,
    Request,
    Session,
    SlurmAwayError,
    converse,
    refused_recently,
)
from slurm_lifecycle.node.state import AgentState, save_state
from slurm_lifecycle.node.verdict import Segment, Verdict

COMMAND_TIMEOUT_S = 10.0
RETRY_FIRST_S = 1.0
RETRY_MAX_S = 60.0
RELEASE_AGAIN_S = 5.0
LOOK_AGAIN_S = 30.0
"""How often to look whether a drain that was not allowed has become so, and a gate that was no longer is."""

VERIFY_S = 900.0
"""How often to look whether the verdict still stands in Slurm: others write the field too, and a slurmctld
that dies loses its last seconds."""


class Reporter:
    """The agent's side of Slurm. At most one command runs at a time.

    Args:
        config: names and mode.
        node: this node's name in Slurm.
        state: what was announced and drained in this boot.
        log: takes one line for people.
        jitter: a number from 0 to 1; spreads the retries of many nodes after one outage.
    """

    def __init__(
        self,
        config: AgentConfig,
        node: str,
        state: AgentState,
        log: Callable[[str], None],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.config, self.node, self.state = config, node, state
        self.notes: Tuple[str, ...] = ()
        self._log, self._jitter = log, jitter
        self._published = False
        self._marker = ""
        self._session: Optional[Session] = None
        self._asked: Optional[Request] = None
        self._child: Optional[Child] = None
        self._failures = 0
        self._not_before_s = 0.0
        self._drain_not_before_s = 0.0
        self._publish_not_before_s = 0.0
        self._verify_at_s = 0.0
        self._held = self._could_gate = False
        self._look_at_s = 0.0
        self._due: Tuple[Finding, ...] = ()
        self._refusal = ""
        self._replace_only = False
        self._held_jobs: Tuple[str, ...] = ()
        self._settled_jobs: FrozenSet[str] = frozenset()
        self._releasing = ""
        self._release: Optional[ReleaseSession] = None
        self._release_not_before_s = 0.0

    # ---------------------------------------------------------------- the loop's side

    def waiting_fds(self) -> List[int]:
        """Descriptors whose readiness is a reason to call `advance`."""
        fd = self._child.waiting_fd if self._child is not None else None
        return [] if fd is None else [fd]

    def timeout_s(self, now_s: float) -> float:
        """How long it may be left alone."""
        if self._child is not None:
            return 0.01 if self._child.waiting_fd is None else 0.25
        waits = []
        if not self._published and self.config.channel != "none":
            waits.append(max(self._not_before_s, self._publish_not_before_s) - now_s)
        elif self.config.channel != "none":
            waits.append(max(self._not_before_s, self._verify_at_s) - now_s)
        if self._could_gate:
            waits.append(max(self._not_before_s, self._look_at_s) - now_s)
        if self._due:
            waits.append(max(self._not_before_s, self._drain_not_before_s) - now_s)
        if self._held_jobs:
            waits.append(max(self._not_before_s, self._release_not_before_s) - now_s)
        return max(0.0, min(waits)) if waits else 3600.0

    @property
    def busy(self) -> bool:
        """A command is running."""
        return self._child is not None

    def may_gate(self, findings: Iterable[Finding]) -> bool:
        """May the prolog refuse jobs?

        Only until the drain stands: from then on Slurm keeps jobs off, and where a person has undrained the
        node, a gate would drain it again with the next job. Whatever forbids the agent to drain forbids the
        drain by a prolog's failure too.

        Args:
            findings: open findings.
        """
        allowed = self.config.mode == "drain" and not self._held and not self._stopped
        return allowed and bool(drain.wanted(findings, frozenset(self.state.done)))

    @property
    def _stopped(self) -> bool:
        return os.path.exists(self.config.stop_file)

    def pending(self) -> bool:
        """Is there something that has been tried less than once? For one-shot runs."""
        return self.busy or (self._failures == 0 and self.timeout_s(self._not_before_s) == 0.0)

    def announce(self, verdict: Verdict, findings: List[Finding]) -> None:
        """Take the present verdict; what is new in it is carried to Slurm by `advance`.

        Args:
            verdict: the verdict now.
            findings: open findings.
        """
        if self.state.announced != verdict.published:
            self.state.seq += 1
            self.state.announced = verdict.published
            self._published = False
            self._publish_not_before_s = 0.0
        marker = read_marker(self.config.image_marker) if self.config.image_marker else None
        text = marker.format() if marker is not None else ""
        if text != self._marker:
            # An installer may write it long after the agent began.
            self._marker, self._published, self._publish_not_before_s = text, False, 0.0
        self._look_for_held_jobs()
        # Of a finding that is gone nothing need be known: should it come back, it is another occurrence.
        self.state.done &= {finding.occurrence for finding in findings}
        due = drain.wanted(findings, frozenset(self.state.done))
        self._replace_only = not due and refused_recently(self.config.run_dir, time.time())
        stopped = self._stopped
        may_drain = self.config.mode == "drain" and not stopped
        self._could_gate = may_drain and bool(due)
        if self._replace_only:
            due = drain.wanted(findings, frozenset())[:1]
        local = drain.decide_locally(self.config.mode, self.state.drains, stopped)
        refusal = local.why if due and not self._replace_only else ""
        if self._replace_only and not may_drain:
            due = ()
        if refusal:
            if refusal != self._refusal:
                self._log(f"no drain for {due[0].sign.code} {due[0].sign.component}: {refusal}")
            due = ()
        self._refusal = refusal
        if self._replace_only or {f.occurrence for f in due} - {f.occurrence for f in self._due}:
            self._drain_not_before_s = 0.0
        self._due = due

    def advance(self, now_s: float) -> None:
        """Go on with the conversation, or begin one where something is to be said.

        Args:
            now_s: uptime.
        """
        if self._child is None:
            self._begin(now_s)
        while self._child is not None:
            result = self._child.poll()
            if result is None:
                return
            self._child = None
            if self._release is not None:
                self._step_release(result, now_s)
            else:
                self._step(result, now_s)

    def close(self) -> None:
        """Give up a running command; what it did is read from the node next time."""
        if self._child is not None:
            self._child.give_up()
            self._child = None

    # ---------------------------------------------------------------- within

    def _begin(self, now_s: float) -> None:
        if now_s < self._not_before_s:
            return
        due = self._due if now_s >= self._drain_not_before_s else ()
        segment = None
        if self._published and now_s >= self._verify_at_s:
            self._published, self._publish_not_before_s = False, 0.0
        publish = not self._published and now_s >= self._publish_not_before_s
        if publish and self.config.channel == "extra" and self.state.announced is not None:
            segment = Segment(self.state.boot_id, self.state.seq, *self.state.announced, marker=self._marker)
        look = self._could_gate and now_s >= self._look_at_s
        if not due and segment is None and not look:
            if self._held_jobs and now_s >= self._release_not_before_s:
                self._releasing = self._held_jobs[0]
                self._release = release(self.config.scontrol, self.node, self._releasing)
                self._step_release(None, now_s)
            return
        wall_s = time.time()
        refused = refused_recently(self.config.run_dir, wall_s)
        # Before the effect: a restart must neither reuse the number nor forget the occurrence.
        self._save()
        self._asked = Request(self.config.scontrol, self.node, due, segment, self._replace_only)
        self._session = converse(self._asked, wall_s, refused, self._about_to_drain)
        self._step(None, now_s)

    def _about_to_drain(self) -> None:
        # Before the effect: a kill between the two must not make room for one drain more than allowed.
        self.state.sent = self._asked is not None and not self._asked.replace_only
        self._save()

    def _step(self, answer: Optional[Result], now_s: float) -> None:
        assert self._session is not None
        try:
            command = next(self._session) if answer is None else self._session.send(answer)
            self._child = Child(list(command), COMMAND_TIMEOUT_S)
        except StopIteration as end:
            self._finish(end.value, now_s)
        except UnknownNodeError:
            self._retry_at(now_s + RETRY_MAX_S)
            hint = "set node_name in the agent's configuration to its NodeName"
            self._note((f"Slurm has no node '{self.node}': {hint}",))
        except (SlurmAwayError, OSError) as error:
            delay_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(self._failures, 10)) * (
                0.5 + self._jitter()
            )
            self._retry_at(now_s + delay_s)
            self._note((f"Slurm does not answer, will try again: {error}",))

    def _look_for_held_jobs(self) -> None:
        if self.config.mode != "drain" or self._stopped:
            self._held_jobs = ()
            return
        refused = refused_jobs(self.config.run_dir, time.time())
        self._settled_jobs &= frozenset(refused)
        self._held_jobs = tuple(job for job in refused if job not in self._settled_jobs)

    def _step_release(self, answer: Optional[Result], now_s: float) -> None:
        assert self._release is not None
        job = self._releasing
        try:
            command = next(self._release) if answer is None else self._release.send(answer)
            self._child = Child(list(command), COMMAND_TIMEOUT_S)
            return
        except StopIteration as end:
            outcome = end.value
        except OSError as error:
            outcome = Release.LATER
            self._note((f"cannot look at refused job {job}: {error.strerror}",))
        self._release = None
        if outcome is Release.LATER:
            # To the end of the queue, so that one job does not keep the others waiting.
            self._held_jobs = (*(one for one in self._held_jobs if one != job), job)
            self._release_not_before_s = now_s + RELEASE_AGAIN_S
            return
        self._settled_jobs |= {job}
        self._held_jobs = tuple(one for one in self._held_jobs if one != job)
        if outcome is Release.RELEASED:
            self._log(f"released job {job}, which this node's prolog had refused")

    def _retry_at(self, when_s: float) -> None:
        self._session = None
        self._failures += 1
        self._not_before_s = when_s

    def _finish(self, report: Report, now_s: float) -> None:
        asked, self._session = self._asked, None
        assert asked is not None
        self._failures = 0
        self._note(report.notes)
        self._held, self._look_at_s = report.held, now_s + LOOK_AGAIN_S
        if asked.due and self.state.sent:
            # Sent now, or by a conversation that broke off. One that Slurm refused is no drain.
            made = report.settled or (report.issued and not report.refused)
            self.state.drains, self.state.sent = self.state.drains + made, False
        if report.issued and not report.refused:
            worst = asked.due[0]
            self._log(f"drained for {worst.sign.code} {worst.sign.component}: {worst.text}")
        if asked.replace_only:
            self._due = ()
        elif asked.due and report.settled:
            self.state.done |= {finding.occurrence for finding in asked.due}
            self._due = tuple(f for f in self._due if f.occurrence not in self.state.done)
        elif asked.due:
            self._drain_not_before_s = now_s + LOOK_AGAIN_S
        if asked.segment is not None:
            current = (self.state.seq, self.state.announced, self._marker)
            if report.published and report.segment is not None:
                self._verify_at_s = now_s + VERIFY_S * (0.5 + self._jitter())
                self._published = current == (
                    asked.segment.seq,
                    asked.segment.published,
                    asked.segment.marker,
                )
                self.state.seq = max(self.state.seq, report.segment.seq)
            else:
                # Only the verdict waits: a drain must not wait for an Extra field that cannot be read.
                self._publish_not_before_s = now_s + RETRY_MAX_S * (0.5 + self._jitter())
        self._save()

    def _save(self) -> None:
        try:
            save_state(self.config.run_dir, self.state)
        except OSError as error:
            self._note((f"cannot write {self.config.run_dir}/agent_state.json: {error.strerror}",))

    def _note(self, notes: Tuple[str, ...]) -> None:
        for note in notes:
            if note not in self.notes:
                self._log(note)
        self.notes = notes
