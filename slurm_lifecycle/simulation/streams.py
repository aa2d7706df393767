"""Randomness by name: each node and purpose has its own stream, so that a change to one moves no other."""

import random


def stream(seed: int | str, subject: str, purpose: str) -> random.Random:
    """The stream of a subject (a node, `fleet`, a job class) for a purpose.

    Seeded by a string, which `random` hashes by SHA-512: the same on every platform and under every
    PYTHONHASHSEED.
    """
    return random.Random(f"{seed}/{subject}/{purpose}")
