"""A store in a temporary folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.sql_store import SqlStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is put; the name needs quoting in a URI."""
    return tmp_path / "a store 100%?#" / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    """An acting store."""
    with open_store(path, host="admin1", acting=True) as opened:
        yield opened
