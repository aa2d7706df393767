"""What it costs to ask a fleet's BMCs, from emulated ones in another process; prints a table.

    python benchmarks/bmc_poll.py [--bmcs 1000] [--threads 32] [--hanging 5] [--gets 10] [--json FILE]

A round reads power, serial number and boot override of every BMC, and `--gets` resources more, in one
session each. Client and emulators share the machine's cores, and a handshake costs both sides: read the CPU
seconds of the client, not the wall time alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm_lifecycle.redfish.client import RedfishBmc
from slurm_lifecycle.redfish.connection import Deadline
from slurm_lifecycle.redfish.pool import BmcPool
from slurm_lifecycle.redfish.settings import BmcSettings, Credentials
from slurm_lifecycle.sandbox.bmc.certificates import Certificate, make_certificate
from slurm_lifecycle.sandbox.bmc.chassis import VirtualChassis
from slurm_lifecycle.sandbox.bmc.host import BmcHost
from slurm_lifecycle.sandbox.bmc.simulator import BmcSimulator

PROFILE = "dgx_h100"
ROUND_S = 300.0
_LOOK_S = 0.05


@dataclass
class Round:
    """One round: `asked` BMCs, `well` of which answered; the highest counts while it lasted."""

    name: str
    asked: int
    well: int
    problems: dict[str, int]
    seconds: float
    cpu_seconds: float
    threads: int
    sockets: int
    rss_mib: float


def serve(folder: Path, count: int, hanging: int) -> None:
    """Serve emulated BMCs until standard input ends; each line of it makes some of them hang, or none."""
    with BmcHost(make_certificate(folder)) as host:
        simulators = [
            BmcSimulator(PROFILE, VirtualChassis(), serial=f"S{number:05d}") for number in range(count)
        ]
        print(json.dumps([host.add(one) for one in simulators]), flush=True)
        for line in sys.stdin:
            for one in simulators[:hanging]:
                if line.strip() == "hang":
                    host.call(lambda one=one: one.inject("hang"))  # type: ignore[misc]
                else:
                    host.call(one.clear)
            print("done", flush=True)


@contextmanager
def serving(folder: Path, count: int, hanging: int) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The emulators in a process of their own."""
    argv = [sys.executable, __file__, "--serve", str(folder), "--bmcs", str(count), "--hanging", str(hanging)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            yield child, json.loads(child.stdout.readline())
        finally:
            child.stdin.close()
            child.wait(30)


def tell(child: subprocess.Popen[str], what: str) -> None:
    """Some hang from now on, or none does."""
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdin.write(f"{what}\n")
    child.stdin.flush()
    child.stdout.readline()


class Watch:
    """The most threads, sockets and memory that were seen."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.threads = self.sockets = 0
        self.rss_mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        """Begun."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ended."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            lines = Path("/proc/self/status").read_text().splitlines()
            status = dict(line.split(":", 1) for line in lines if ":" in line)
            self.threads = max(self.threads, int(status["Threads"]) - 1)
            self.rss_mib = max(self.rss_mib, int(status["VmRSS"].split()[0]) / 1024)
            self.sockets = max(self.sockets, sum(_is_socket(one) for one in Path("/proc/self/fd").iterdir()))


def _is_socket(entry: Path) -> bool:
    try:
        return str(entry.readlink()).startswith("socket:")
    except OSError:
        return False


def one_round(name: str, pool: BmcPool, gets: int) -> Round:
    """Ask all of them once."""

    def work(bmc: RedfishBmc, deadline: Deadline) -> str:
        reading = bmc.read(deadline)
        try:
            if not reading.problem.value and gets:
                with bmc.connected(deadline) as connection:
                    for _ in range(gets):
                        connection.get(bmc.profile.system)
        except Exception as error:
            return bmc.problem(error)[0].value
        return reading.problem.value or "well"

    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    with Watch() as watch:
        answers = pool.run(pool.nodes, work, ROUND_S)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts = Counter(one or "not done" for one in answers.values())
    well = counts.pop("well", 0)
    found = Round(name, len(answers), well, dict(counts), seconds, cpu_s, 0, watch.sockets, watch.rss_mib)
    found.threads = watch.threads
    return found


def settings_of(addresses: list[str], certificate: Certificate) -> dict[str, BmcSettings]:
    """How they are reached."""
    return {
        f"n{number}": BmcSettings(
            f"n{number}",
            address,
            PROFILE,
            lambda: Credentials("admin", "Emulated-1"),
            serial=f"S{number:05d}",
            ca_file=str(certificate.ca_file),
        )
        for number, address in enumerate(addresses)
    }


def table(rounds: list[Round]) -> str:
    """As text."""
    lines = [
        f"{'round':34} {'well':>10} {'seconds':>8} {'CPU s':>6} {'threads':>7} {'sockets':>7} {'RSS MiB':>7}"
    ]
    for one in rounds:
        share = f"{one.well}/{one.asked}"
        lines.append(
            f"{one.name:34} {share:>10} {one.seconds:8.1f} {one.cpu_seconds:6.1f} {one.threads:7} "
            f"{one.sockets:7} {one.rss_mib:7.0f}  {one.problems or ''}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bmcs", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--hanging", type=int, default=5, help="in percent")
    parser.add_argument("--gets", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        serve(args.serve, args.bmcs, args.hanging)
        return
    count = args.bmcs * args.hanging // 100
    with tempfile.TemporaryDirectory() as folder:
        certificate = make_certificate(Path(folder, "tls"))
        with serving(Path(folder, "tls"), args.bmcs, count) as (child, addresses):
            pool = BmcPool(settings_of(addresses, certificate), threads=args.threads)
            rounds = [one_round("power, with login", pool, 0), one_round("power, in a session", pool, 0)]
            rounds.append(one_round(f"power and {args.gets} resources", pool, args.gets))
            tell(child, "hang")
            rounds.append(one_round(f"power, {count} hang", pool, 0))
            tell(child, "well")
            rounds.append(one_round("power, none hangs any more", pool, 0))
            pool.close()
    print(table(rounds))
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(one) for one in rounds], indent=1))


if __name__ == "__main__":
    main()
