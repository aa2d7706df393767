"""The `sandbox` commands: a real local Slurm with emulated GPU nodes."""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from slurm_lifecycle.sandbox.conf import CONTROLLER
from slurm_lifecycle.sandbox.faults import CLEARS
from slurm_lifecycle.sandbox.settings import DEFAULT_NAME, SandboxError

_F = TypeVar("_F", bound=Callable[..., Any])


def _which(command: _F) -> _F:
    """Options that say which sandbox is meant, and errors as one line."""

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except SandboxError as problem:
            click.echo(f"sandbox: {problem}", err=True)
            sys.exit(3)

    root = click.option("--root", type=click.Path(path_type=Path), help="Its folder (default: by its name).")
    name = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which sandbox.")
    return cast(_F, name(root(guarded)))


@click.group()
def sandbox() -> None:
    """A real local Slurm with emulated GPU nodes, to try everything without a GPU."""


@sandbox.command()
@_which
@click.option("--nodes", default=8, show_default=True, help="Number of nodes.")
@click.option("--gpus", default=8, show_default=True, help="GPUs a node.")
@click.option("--agent/--no-agent", default=True, help="Run the node agent on the nodes.")
@click.option("--agent-mode", type=click.Choice(["drain", "observe"]), default="drain", show_default=True)
@click.option("--return-to-service", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("--boot-s", default=3.0, show_default=True, help="Time that a node's firmware takes.")
@click.option("--slurmd-timeout-s", default=10, show_default=True, help="SlurmdTimeout of slurm.conf.")
@click.option("--resume-timeout-s", default=120, show_default=True, help="ResumeTimeout of slurm.conf.")
@click.option("--bmc", is_flag=True, help="Give every node an emulated BMC (Redfish, on loopback).")
@click.option("--bmc-profile", default="generic", show_default=True, help="Kind of BMC; several take turns.")
@click.option(
    "--install", "install_packages", is_flag=True, help="Install the Slurm packages with apt-get first."
)
def up(name: str, root: Path | None, install_packages: bool, **settings: Any) -> None:
    """Start a sandbox and wait until its nodes are in service."""
    from slurm_lifecycle.sandbox import preflight
    from slurm_lifecycle.sandbox.cluster import Sandbox

    if install_packages:
        preflight.install(click.echo)
    cluster = Sandbox.create(root, name=name, **settings)
    # As Ctrl-C: whoever ends the command, or closes its terminal, is left without half a cluster.
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda number, _frame: sys.exit(128 + number))
    cluster.up(click.echo)
    option = "" if name == DEFAULT_NAME else f" --name {name}"
    for key, value in cluster.env().items():
        click.echo(f"\nexport {key}={shlex.quote(value)}")
    click.echo(
        "\ntry:  sinfo\n"
        "      sbatch --gres=gpu:2 --wrap 'nvidia-smi -L || sleep 60'\n"
        f"      slurm-lifecycle sandbox inject{option} n1 xid 79 --gpu 3\n"
        f"      slurm-lifecycle sandbox status{option}\n"
        f"      slurm-lifecycle sandbox down{option}"
    )


@sandbox.command()
@_which
def down(name: str, root: Path | None) -> None:
    """Stop a sandbox and remove everything that it made."""
    from slurm_lifecycle.sandbox.cluster import Sandbox

    Sandbox.create(root, name=name).down(click.echo)


@sandbox.command()
@_which
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def status(name: str, root: Path | None, as_json: bool) -> None:
    """Show what runs and how each node is. Exit 1 when a process of the sandbox is missing."""
    from slurm_lifecycle.sandbox.cluster import Sandbox

    cluster = Sandbox.open(name, root)
    seen = cluster.status()
    if as_json:
        click.echo(json.dumps(seen, indent=1))
    else:
        _print_status(seen)
    sys.exit(0 if cluster.is_up() else 1)


def _print_status(seen: dict[str, Any]) -> None:
    click.echo(f"sandbox {seen['name']} in {seen['root']}")
    dead = [process for process, info in seen["processes"].items() if not info["alive"]]
    if dead or not seen["processes"]:
        click.echo(f"not running: {' '.join(dead) or 'anything'} (`sandbox up` starts afresh)")
    for node in seen["nodes"]:
        faults = ", ".join(fault["key"] for fault in node.get("faults", []))
        boot = f"boot {node.get('boots', '-')} {node.get('boot_id', '')[:8]}"
        tail = f"  bmc {node['bmc']}" if "bmc" in node else ""
        tail += f"  faults: {faults}" if faults else ""
        click.echo(
            f"{node['node']:5} {node['power']:10} {node['slurm_state']:24} "
            f"{boot} image {node.get('image') or '-'}{tail}"
        )


@sandbox.command()
@_which
@click.argument("node")
@click.argument("fault")
@click.argument("code", required=False, type=int)
@click.option("--gpu", type=int, help="Which GPU (default 0).")
@click.option("--clears", type=click.Choice(list(CLEARS)), help="What makes it go away.")
@click.option("--text", help="Kernel-log text in place of the usual one.")
@click.option("--with", "words", multiple=True, metavar="KEY=VALUE", help="A detail of a fault of the BMC.")
def inject(
    name: str, root: Path | None, node: str, fault: str, words: tuple[str, ...], **details: Any
) -> None:
    """Make a NODE faulty.

    FAULT is xid (with its number as CODE), gpu-lost, gpu-reset-required, remap-pending, remap-failure,
    ecc-uncorrected, driver-mismatch, driver-down, nvml-hang, boot-hang, os-deaf, kernel-log, crash,
    shutdown, power-off, power-on or clear. A fault of its BMC is bmc- and its kind, such as
    `bmc-conflict-409 --with seconds=5`; `bmc-clear` takes all away, and
    `bmc-health --with part=psu0 --with health=Critical` makes a part sick.
    """
    from slurm_lifecycle.sandbox.cluster import Sandbox

    details["details"] = dict(_pair(word) for word in words)
    Sandbox.open(name, root).inject(node, fault, **details)
    click.echo(f"{node}: {fault}{' ' + str(details['code']) if details['code'] else ''}")


def _pair(word: str) -> tuple[str, str]:
    key, found, value = word.partition("=")
    if not (found and key and value):
        raise SandboxError(f"--with {word}: write KEY=VALUE")
    return key, value


@sandbox.command(name="replace-gpu")
@_which
@click.argument("node")
@click.option("--gpu", type=int, required=True, help="Which one.")
def replace_gpu(name: str, root: Path | None, node: str, gpu: int) -> None:
    """Put a new GPU into a NODE, as a technician would: off, another serial number, on."""
    from slurm_lifecycle.sandbox.cluster import Sandbox

    Sandbox.open(name, root).node(node).replace_gpu(gpu)
    click.echo(f"{node}: gpu {gpu} replaced")


@sandbox.command(name="exec", context_settings={"ignore_unknown_options": True})
@_which
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(name: str, root: Path | None, node: str, command: tuple[str, ...]) -> None:
    """Run a COMMAND on a NODE, in its own namespaces; `ctl` is the controller's host."""
    from slurm_lifecycle.sandbox.cluster import Sandbox

    cluster = Sandbox.open(name, root)
    if node == CONTROLLER:
        argv, environment = cluster.controller_command(command), {**os.environ, **cluster.env()}
    else:
        argv, environment = cluster.node(node).enter_command(command), cluster.node(node).environment()
    os.execvpe(argv[0], argv, {"TERM": os.environ.get("TERM", "dumb"), **environment})


@sandbox.command(name="reimage-hook")
@_which
@click.argument("step", type=click.Choice(["start", "poll", "stage", "abort"]))
def reimage_hook(name: str, root: Path | None, step: str) -> None:
    """Reimage command hook of the sandbox: takes NODE, IMAGE and OP_ID from the environment."""
    from slurm_lifecycle.sandbox import reimage
    from slurm_lifecycle.sandbox.cluster import Sandbox

    click.echo(reimage.hook(Sandbox.open(name, root), step, os.environ))


@sandbox.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON array; what goes on is told on stderr.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this scenario (may be repeated).")
@click.option("--keep", is_flag=True, help="Leave the sandbox running, to look around.")
@click.option("--name", default="demo", show_default=True, help="Which sandbox it makes for itself.")
def demo(name: str, as_json: bool, only: tuple[str, ...], keep: bool) -> None:
    """Faults found, drained, repaired, checked and returned on a real Slurm, judged from outside.

    Plays 11 scenarios with the real daemon on 11 emulated nodes, three of them with BMCs that it knows. An
    observer that shares no code with the suite watches Slurm and the machines, and decides. Exit 0 only when
    every scenario ended as it must.
    """
    from slurm_lifecycle.cli import demo_view
    from slurm_lifecycle.sandbox import demo as playing

    try:
        outcome = playing.run_demo(
            demo_view.default_view(quiet_stdout=as_json), only=only, keep=keep, name=name
        )
    except playing.Interrupted as interrupted:
        click.echo(f"sandbox: ended by {interrupted}", err=True)
        sys.exit(128 + interrupted.number)
    except SandboxError as problem:
        click.echo(f"sandbox: {problem}", err=True)
        sys.exit(3)
    words = demo_view.summary(outcome.scenarios, outcome.jobs, outcome.jobs_hurt, outcome.seconds)
    click.echo(words, err=as_json)
    if as_json:
        click.echo(json.dumps(outcome.scenarios, indent=1))
    sys.exit(0 if outcome.ok else 1)
