"""The tree as the architecture tests see it."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "slurm_lifecycle"
HOOKS = tuple(ROOT / path for path in ("prolog/prolog.sh", "epilog/epilog.sh", "healthcheck/healthcheck.sh"))


def modules(folder: Path) -> list[Path]:
    """All Python files below a folder."""
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def name_of(path: Path) -> str:
    """A path as it is named in messages."""
    return str(path.relative_to(ROOT))


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported(path: Path) -> Iterator[str]:
    """Full names of all modules that a file imports, wherever in it; `from a import b` gives `a.b`."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tracked_files() -> list[Path]:
    """The files that git would hand over; in an unpacked archive all files that are no build output."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=30,
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    hidden = (".venv", ".git", "__pycache__", "build", "dist")
    return [path for path in ROOT.rglob("*") if path.is_file() and not set(hidden) & set(path.parts)]
