"""`python -m slurm_lifecycle.sandbox.bmc serve FILE`: the BMCs of a sandbox; FILE is its `bmc/bmcs.json`."""

from __future__ import annotations

import sys
from pathlib import Path

from slurm_lifecycle.sandbox.bmc.serving import serve

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "serve":
        sys.exit(__doc__)
    sys.exit(serve(Path(sys.argv[2])))
