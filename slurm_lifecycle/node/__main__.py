"""`python -m slurm_lifecycle.node`: the agent, a one-shot run in its place, and the one at boot."""

from __future__ import annotations

import argparse
import sys
import traceback
from dataclasses import replace
from typing import Optional, Sequence

from slurm_lifecycle.node.agent import (
    EXIT_CONFIG,
    EXIT_FAILED,
    EXIT_OK,
    ONCE_CONFIRM_AFTER_S,
    Agent,
    AlreadyRunningError,
    log,
    take_lock,
)
from slurm_lifecycle.node.checks.registry import CHECK_IDS
from slurm_lifecycle.node.config import AgentConfig, ConfigError, load_config

ONCE_BUDGET_S = 30.0
BOOT_BUDGET_S = 60.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm-lifecycle agent", description="Health agent of a compute node."
    )
    parser.add_argument("--config", help="configuration file (default /etc/slurm-lifecycle/agent.conf)")
    parser.add_argument("--budget-s", type=float, help="bound of a one-shot run in seconds")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--once", action="store_true", help="one full check, publish, exit")
    kind.add_argument("--boot", action="store_true", help="the same at boot, before slurmd")
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the agent.

    Args:
        arguments: command line without the program; None for the process's own.

    Returns:
        Exit status: 0 ok, 1 a drain-level finding, 2 bad configuration, 3 could not.
    """
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except Exception:
        # Python's own exit status for this is 1, which here means that the node must be drained.
        log(traceback.format_exc() + "slurm-lifecycle agent: ended by a fault of its own; please report it")
        return EXIT_FAILED


def _run(options: argparse.Namespace) -> int:
    try:
        config = load_config(options.config, CHECK_IDS)
    except ConfigError as error:
        log(f"slurm-lifecycle agent: {error}")
        return EXIT_CONFIG
    once = options.once or options.boot
    try:
        take_lock(config.run_dir)
    except AlreadyRunningError:
        log(f"an agent is running already in {config.run_dir}: nothing to do")
        return EXIT_OK if once else EXIT_FAILED
    except OSError as error:
        log(f"cannot use run directory {config.run_dir}: {error.strerror}; set run_dir or run as root")
        return EXIT_FAILED
    if not once:
        return Agent(config).run()
    budget_s = options.budget_s or (BOOT_BUDGET_S if options.boot else ONCE_BUDGET_S)
    return Agent(_bounded(config, budget_s), ONCE_CONFIRM_AFTER_S).run_once(budget_s)


def _bounded(config: AgentConfig, budget_s: float) -> AgentConfig:
    """Probes of a one-shot run end while there is time left to say what became of them."""
    return replace(config, probe_timeout_s=min(config.probe_timeout_s, budget_s * 0.5))


if __name__ == "__main__":
    sys.exit(main())
