"""What may be said to Slurm: one plain name, one job, one line of reason. Every back end holds to it."""

import re

from slurm_lifecycle.errors import PermanentError
from slurm_lifecycle.slurm import parse

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Words that scontrol takes for something else than a name: `nodename=ALL` means the whole cluster.
_NOT_NAMES = frozenset({"all", "default", "localhost", "asap", "force"})
_JOB_ID = re.compile(r"[0-9]{1,12}(?:_[0-9]{1,9}|\+[0-9]{1,4})?")
_REASON = re.compile(r"[A-Za-z0-9 ._:/+-]{1,200}")
# One argument of a command may have 128 KiB on Linux.
_MAX_TEXT_BYTES = 64 * 1024


def plain_name(name: str) -> str:
    """The name of one node or reservation, and nothing that Slurm expands."""
    if not _NAME.fullmatch(name) or name.lower() in _NOT_NAMES:
        raise PermanentError("check a name", f"not the name of one node or reservation: {name[:80]!r}")
    return name


def plain_job_id(job_id: str) -> str:
    """The id of one job, one task of an array or one component of a heterogeneous job."""
    if not _JOB_ID.fullmatch(job_id):
        raise PermanentError("check a job id", f"not the id of one job: {job_id[:80]!r}")
    return job_id


def plain_reason(operation: str, reason: str) -> str:
    """A Reason of the daemon's own."""
    if not _REASON.fullmatch(reason) or reason != reason.strip():
        raise PermanentError(operation, f"not a reason of one line of [A-Za-z0-9 ._:/+-]: {reason!r}")
    return reason


def free_text(operation: str, text: str) -> str:
    """Comment and Extra may hold foreign content of any kind, if it can be told apart when read back."""
    if len(text.encode("utf-8", "surrogateescape")) > _MAX_TEXT_BYTES or "\0" in text:
        raise PermanentError(operation, f"text longer than {_MAX_TEXT_BYTES} bytes, or with a zero byte")
    if "\n\nNodeName=" in text or any(f"\n   {key}=" in text for key in parse.TAIL_KEYS):
        raise PermanentError(operation, "text with a line that looks like one of scontrol's own")
    return text
