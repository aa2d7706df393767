"""What the demonstration runs on: its sandbox, the real daemon, the observer, and users' jobs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox import bmcs, observer, preflight, procs
from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.scenarios_machine import BMC_NODES
from slurm_lifecycle.sandbox.scenarios_record import Record
from slurm_lifecycle.sandbox.settings import SandboxError

NODES = 11
ADOPT_AFTER_S = 5.0
BREAKER_WINDOW_S = 35.0
_COMMAND_TIMEOUT_S = 60.0
_STOP_S = 15.0
# An answer of the suite is not asked for again within this time: each question starts a Python.
_READ_AGAIN_S = 1.0
# Jobs stay away from nodes that a scenario needs idle: n1 has a job of its own, the others none.
_KEPT_FREE = "n1,n2,n6,n8,n9,n10,n11"
_JOBS = (
    (6, ("--nodes=1", "--gres=gpu:2", "--cpus-per-task=2")),
    (9, ("--nodes=2", "--gres=gpu:1", "--cpus-per-task=1")),
    (4, ("--nodes=1", "--gres=gpu:4", "--cpus-per-task=4")),
    (12, ("--nodes=1", "--gres=gpu:1", "--cpus-per-task=1")),
)
_JOBS_AT_ONCE = 5
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_CLI = (sys.executable, "-c", "from slurm_lifecycle.cli.main import main; main()")

# Every figure that differs from a site's is a short time or a small number; decisions are the same.
_POLICY = f"""\
[budget]
max_out = 9
max_working = 8
[breaker]
window = "{BREAKER_WINDOW_S:g}s"
least = 6
[adopt]
after = "{ADOPT_AFTER_S:g}s"
[deadlines]
verify_settle = "4s"
retry_after = "3s"
[relapse]
# The same nodes fail again within minutes here; on a site that would be a relapse.
window = "1s"
lemon_7d = 50
lemon_28d = 50
[machine]
graceful_off = "4s"
force_off = "10s"
off_dwell = "2s"
on = "20s"
retry = "2s"
marker = "30s"
[caps]
reboot = [{{ count = 6, within = "24h" }}]
reimage = [{{ count = 6, within = "24h" }}]
"""


def daemon_config(root: Path, folder: Path, reimage: str = "command") -> str:
    """The daemon's configuration for a sandbox.

    Args:
        root: the sandbox's root.
        folder: where store, policy and tickets lie.
        reimage: how nodes are reimaged, `command` or `pxe`.
    """
    hook = [*_CLI, "sandbox", "reimage-hook", "--root", str(root)]
    reach = [*_CLI, "sandbox", "exec", "--root", str(root), "{node}", "sh", "-c"]
    # A JSON string, and a list of them, is TOML as well.
    return f"""\
mode = "act"
partitions = ["*"]
rungs = ["drain", "return", "reboot", "power", "reimage", "rma"]
[store]
path = "{folder}/store.db"
[daemon]
interval_s = 1.0
metrics_port = 0
log_format = "text"
[reimage]
method = "{reimage}"
start = {json.dumps([*hook, "stage" if reimage == "pxe" else "start"])}
poll = {json.dumps([*hook, "poll"])}
abort = {json.dumps([*hook, "abort"])}
image = "golden-2"
[bmc]
file = "{folder}/bmc.toml"
serials = "{root}/bmc/serials.toml"
[rma]
folder = "{folder}/tickets"
[node_command]
argv = {json.dumps(reach)}
[policy]
file = "{folder}/policy.toml"
"""


class DemoCluster:
    """The `World` of the scenarios; a context that always cleans up.

    Args:
        sandbox: not yet up.
        say: is told in one line what goes on.
        keep: leave the sandbox running at the end.
    """

    def __init__(self, sandbox: Sandbox, say: Callable[[str], None], *, keep: bool = False) -> None:
        self.sandbox = sandbox
        self.record = Record()
        self.adopt_after_s = ADOPT_AFTER_S
        self._say = say
        self._keep = keep
        self._folder = sandbox.root / "demo"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._observer: subprocess.Popen[bytes] | None = None
        self._events = self._folder / "observed.jsonl"
        self._read_to = 0
        self._answers: dict[tuple[str, ...], tuple[float, Any]] = {}
        self._jobs: list[str] = []

    # ---- life

    def __enter__(self) -> DemoCluster:
        if _runs(self.sandbox):
            name = self.sandbox.settings.name
            raise SandboxError(
                f"a sandbox {name!r} runs already: `slurm-lifecycle sandbox down --name {name}`, or --name"
            )
        try:
            self.sandbox.up(self._say)
            self._folder.mkdir()
            (self._folder / "policy.toml").write_text(_POLICY, encoding="utf-8")
            known = bmcs.bmc_toml(self.sandbox.layout, BMC_NODES)
            (self._folder / "bmc.toml").write_text(known, encoding="utf-8")
            self._configure("command")
            self._start_observer()
            self.start_daemon()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the daemon, the jobs, the observer; takes the sandbox down unless it is to be kept.

        A second Ctrl-C must not leave half of it behind: signals are not heard any more from here on.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        for child in (self._daemon, self._observer):
            if child is not None:
                _stop(child)
        self._daemon = self._observer = None
        if self._jobs:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self.sandbox.client(["scancel", *self._jobs], timeout_s=20)
        if self._keep and self.sandbox.is_up():
            name, conf = self.sandbox.settings.name, self.sandbox.layout.slurm_conf
            self._say(f"kept: SLURM_CONF={conf}; `slurm-lifecycle sandbox down --name {name}` removes it")
            return
        self.sandbox.down(self._say)

    def _configure(self, reimage: str) -> None:
        text = daemon_config(self.sandbox.root, self._folder, reimage)
        (self._folder / "slurm-lifecycle.toml").write_text(text, encoding="utf-8")

    def reimage_by(self, method: str) -> None:
        """The administrator changes how nodes are reimaged, `command` or `pxe`, and restarts the daemon."""
        self._configure(method)
        if self._daemon is not None:
            _stop(self._daemon)
            self._daemon = None
        self.start_daemon()

    def _environment(self) -> dict[str, str]:
        path = f"{os.environ.get('PATH', '')}:{preflight.SYSTEM_PATH}"
        # The root in the environment lets `sandbox down` find the children of a killed demonstration.
        return {**os.environ, "PATH": path, procs.ROOT_VARIABLE: str(self.sandbox.root), **self.sandbox.env()}

    def _start(self, argv: list[str], out: Path, log: Path) -> subprocess.Popen[bytes]:
        with out.open("ab") as stdout, log.open("ab") as stderr:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=self._environment(),
                # Ctrl-C is for the demonstration: it ends its children in order.
                start_new_session=True,
            )

    def _start_observer(self) -> None:
        layout = self.sandbox.layout
        argv = [sys.executable, observer.__file__, "--log", str(self.sandbox.slurmctld_log)]
        argv += ["--machines", str(layout.nodes), "--bmc-log", str(layout.bmc_log)]
        self._observer = self._start(argv, self._events, self._folder / "observer.log")

    def start_daemon(self) -> None:
        """Starts the real daemon, as its unit would."""
        argv = [*_CLI, "--config", str(self._folder / "slurm-lifecycle.toml"), "daemon"]
        log = self._folder / "daemon.log"
        self._daemon = self._start(argv, log, log)

    def kill_daemon(self) -> None:
        """Kills it by SIGKILL."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait(_STOP_S)
            self._daemon = None

    # ---- what is seen

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def look(self) -> None:
        """Takes in what the observer wrote since the last look.

        Raises:
            SandboxError: when the observer or the daemon ended by itself.
        """
        for child, log in ((self._observer, "observer.log"), (self._daemon, "daemon.log")):
            if child is not None and child.poll() is not None:
                lines = (self._folder / log).read_text(encoding="utf-8", errors="replace").splitlines()
                words = lines[-1] if lines else "without a word"
                raise SandboxError(f"the {log.partition('.')[0]} ended by itself: {words}")
        with self._events.open("rb") as events:
            events.seek(self._read_to)
            data = events.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.splitlines():
            self.record.feed(json.loads(line))

    def wait_watched(self) -> None:
        """Waits until the observer has seen the cluster once, so that nothing happens unseen."""
        deadline = time.monotonic() + 20
        while not self.record.polls:
            if time.monotonic() > deadline:
                raise SandboxError(f"the observer sees nothing: see {self._folder}/observer.log")
            time.sleep(0.1)
            self.look()

    # ---- what scenarios do

    def inject(self, node: str, fault: str, **details: Any) -> None:
        """Makes a node faulty."""
        self.sandbox.inject(node, fault, **details)

    def image(self, node: str) -> str:
        """The image that a node runs."""
        return str(self.sandbox.node(node).describe()["image"])

    def replace_gpu(self, node: str, gpu: int) -> None:
        """A technician puts a new GPU into a node: off, another serial number, on."""
        self.sandbox.node(node).replace_gpu(gpu)

    def bmc(self, node: str) -> bmcs.Bmc:
        """The node's BMC."""
        return self.sandbox.bmc(node)

    def tickets(self) -> list[Path]:
        """Tickets on disk."""
        folder = self._folder / "tickets"
        return sorted(path for path in folder.iterdir() if path.suffix == ".md") if folder.is_dir() else []

    def slurm(self, *argv: str) -> str:
        """Runs a client command of Slurm.

        Raises:
            SandboxError: when it fails.
        """
        done = self.sandbox.client(argv)
        if done.returncode:
            raise SandboxError(f"{' '.join(argv[:3])}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def submit(self, seconds: float, *options: str) -> str:
        """Submits a user's job; returns its id."""
        out = self.slurm("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", f"sleep {seconds:g}")
        job = out.strip().partition(";")[0]
        self._jobs.append(job)
        return job

    def keep_users_busy(self) -> None:
        """Keeps some jobs of several sizes waiting or running."""
        mine = [self.record.jobs[job][-1].state for job in self._jobs if job in self.record.jobs]
        unseen = len(self._jobs) - len(mine)
        there = unseen + sum(1 for state in mine if state in ("PENDING", "RUNNING", "COMPLETING"))
        for _ in range(there, _JOBS_AT_ONCE):
            seconds, options = _JOBS[len(self._jobs) % len(_JOBS)]
            self.submit(seconds, f"--exclude={_KEPT_FREE}", *options)

    def suite(self, *argv: str) -> str:
        """Runs a command of the suite against the daemon's store; what it printed."""
        done = subprocess.run(
            [*_CLI, "--config", str(self._folder / "slurm-lifecycle.toml"), *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_TIMEOUT_S,
            env=self._environment(),
        )
        return done.stdout or done.stderr

    def read(self, *argv: str) -> Any:
        """What a read command of the suite prints as JSON; None where it prints none."""
        asked = self._answers.get(argv)
        if asked is not None and time.monotonic() - asked[0] < _READ_AGAIN_S:
            return asked[1]
        try:
            answer = json.loads(self.suite(*argv))
        except ValueError:
            answer = None
        self._answers[argv] = (time.monotonic(), answer)
        return answer

    def note(self, name: str, facts: Mapping[str, Any]) -> None:
        """Writes down what a judgement was made from, beside the observer's record."""
        with (self._folder / "facts.jsonl").open("a", encoding="utf-8") as notes:
            notes.write(json.dumps({"name": name, **facts}) + "\n")

    def claims(self, node: str) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Incidents and findings that the suite has on record for a node."""
        self._answers.clear()
        shown = self.read("node", "show", node, "--json") or {}
        return list(shown.get("incidents", [])), list(shown.get("findings", []))


def _runs(sandbox: Sandbox) -> bool:
    """Whether there is one in the same place, with whatever settings it was made."""
    try:
        return Sandbox.open(sandbox.settings.name, sandbox.root).is_up()
    except SandboxError:
        return False


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(_STOP_S)
