"""What every command is handed: where the configuration is, and the way to the store and to Slurm."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_lifecycle.ports import Slurm
    from slurm_lifecycle.service.config import Config
    from slurm_lifecycle.store.sql_store import SqlStore

_LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}")


@dataclass(slots=True)
class CliContext:
    """Loads what a command needs when it needs it."""

    config_path: Path
    _config: Config | None = field(default=None, repr=False)

    def config(self) -> Config:
        """The checked configuration.

        Raises:
            ConfigError: it is missing or wrong.
        """
        if self._config is None:
            from slurm_lifecycle.service.config import load_config

            self._config = load_config(self.config_path)
        return self._config

    def store(self) -> SqlStore:
        """The store, for reading only; never in the daemon's way."""
        from slurm_lifecycle.service import bootstrap

        return bootstrap.open_store_readonly(self.config())

    def store_for_requests(self) -> SqlStore:
        """The store, to leave a person's request in."""
        from slurm_lifecycle.service import bootstrap

        return bootstrap.open_store_for_requests(self.config())

    def slurm(self) -> Slurm:
        """The cluster."""
        from slurm_lifecycle.service import bootstrap

        return bootstrap.make_slurm(self.config())


def actor() -> str:
    """Who asks, for the history: the login behind sudo where there is one. A courtesy, not a proof."""
    behind = os.environ.get("SUDO_USER", "")
    if _LOGIN.fullmatch(behind):
        return behind
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
