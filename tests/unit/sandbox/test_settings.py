"""Settings of a sandbox: what can be started, and what is refused in one line before anything is."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_lifecycle.sandbox.settings import SandboxError, Settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"gpus": 17},
        {"slurmd_timeout_s": 0},
        {"slurmd_timeout_s": -5},
        {"resume_timeout_s": 10**11},
        {"boot_s": -1.0},
        {"boot_s": math.nan},
        {"install_s": math.inf},
        {"health_interval_s": -1},
        {"agent_interval_s": 0},
        {"return_to_service": 3},
        {"agent_mode": "act"},
        {"name": "a b"},
    ],
)
def test_what_cannot_be_started_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SandboxError, match=r"choose|use") as caught:
        Settings(**wrong)
    assert "\n" not in str(caught.value)


def test_settings_are_read_back_and_unknown_ones_left_out() -> None:
    settings = Settings(name="x", nodes=3, health_interval_s=0)
    assert Settings.from_json(settings.to_json()) == settings
    assert Settings.from_json('{"nodes": 3, "of_another_release": 1}') == Settings(nodes=3)


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4),
    st.text(max_size=20),
)
def test_damaged_settings_are_an_error_of_ours(value: object, text: str) -> None:
    for raw in (text, json.dumps(value), json.dumps({"nodes": value, "name": value})):
        try:
            Settings.from_json(raw)
        except SandboxError:
            continue
