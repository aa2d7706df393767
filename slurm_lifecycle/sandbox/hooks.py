"""Puts the Slurm hooks of the repository into a sandbox, as a site would put them on its nodes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from slurm_lifecycle.sandbox.conf import Hooks
from slurm_lifecycle.sandbox.settings import Layout, Settings

# slurmd gives hooks an almost empty environment, so the script needs nothing but the shell's own `echo`.
# Opened for reading and writing: a FIFO without a reader then does not block the hook.
_REBOOT = """\
#!/bin/sh
# RebootProgram of the sandbox: asks the machine that this node is emulated on for a reboot.
echo reboot 1<>/run/slc-machine/request
"""

# On a real node the NVML library lies in the linker's path and the agent in PATH.
_HEALTHCHECK = """\
#!/bin/sh
export LD_LIBRARY_PATH={lib} SLC_FAKE_NVML_STATE=/run/slc-machine/nvml.state SLURM_CONF={conf}
export PATH={python_dir}:/usr/sbin:/usr/bin:/sbin:/bin
export SLC_PYTHON={python}
exec /bin/sh {script}
"""


# On a real node a job finds NVML without being told. What TaskProlog prints becomes environment.
_TASK_PROLOG = """\
#!/bin/sh
echo "export LD_LIBRARY_PATH={lib}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
echo "export SLC_FAKE_NVML_STATE=/run/slc-machine/nvml.state"
"""

_NVIDIA_SMI = """\
#!/bin/sh
export LD_LIBRARY_PATH={lib} SLC_FAKE_NVML_STATE=/run/slc-machine/nvml.state
exec {python} -m slurm_lifecycle.sandbox.nvidia_smi "$@"
"""


def source_dir(settings: Settings) -> Path:
    """Where the hooks come from."""
    if settings.hooks_dir:
        return Path(settings.hooks_dir)
    return Path(__file__).resolve().parent.parent.parent


def install(settings: Settings, layout: Layout) -> Hooks:
    """Copies the hooks into the sandbox; one that the source does not have is not wired."""
    target = layout.etc / "hooks"
    target.mkdir(parents=True, exist_ok=True)
    source = source_dir(settings)
    found = {}
    for name in ("prolog", "epilog", "healthcheck"):
        script = source / name / f"{name}.sh"
        if script.is_file():
            found[name] = target / script.name
            shutil.copyfile(script, found[name])
            found[name].chmod(0o755)
    if "healthcheck" in found:
        wrapper = target / "healthcheck-wrapper.sh"
        text = _HEALTHCHECK.format(
            lib=layout.lib,
            conf=layout.slurm_conf,
            python=sys.executable,
            python_dir=Path(sys.executable).parent,
            script=found["healthcheck"],
        )
        _write_script(wrapper, text)
        found["healthcheck"] = wrapper
    reboot = target / "reboot.sh"
    _write_script(reboot, _REBOOT)
    task_prolog = target / "task_prolog.sh"
    _write_script(task_prolog, _TASK_PROLOG.format(lib=layout.lib))
    return Hooks(
        prolog=str(found.get("prolog", "")),
        epilog=str(found.get("epilog", "")),
        healthcheck=str(found.get("healthcheck", "")),
        reboot=str(reboot),
        task_prolog=str(task_prolog),
    )


def install_tools(layout: Layout) -> None:
    """Writes the programs that the nodes have beyond this machine's own: a small `nvidia-smi`."""
    _write_script(layout.bin / "nvidia-smi", _NVIDIA_SMI.format(lib=layout.lib, python=sys.executable))


def _write_script(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
