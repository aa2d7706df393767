"""Reading the kernel log record by record, from the start of the boot, by a cursor that survives restarts."""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from typing import List, Optional, Tuple

_RECORD_BYTES = 65536
_MAX_RECORDS = 4096
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")
_FACILITY_KERNEL = 0


@dataclass(frozen=True)
class Record:
    """One record of the kernel log.

    Attributes:
        seq: the kernel's number of the record; counts up within a boot.
        uptime_s: when it was logged.
        lines: its text; usually one line.
    """

    seq: int
    uptime_s: float
    lines: Tuple[str, ...]


def parse_record(text: str) -> Optional[Record]:
    """One record in the form `priority,sequence,microseconds,flags[,...];text`.

    Only what the kernel itself logged is a record: the kernel stores what user space writes to the log under
    another facility, so no user can forge a fault. Lines that start with a blank carry key=value pairs and
    are not text.

    Args:
        text: the record with its continuation lines.

    Returns:
        None for a record of user space and for what is no record.
    """
    head, separator, body = text.partition(";")
    fields = head.split(",")
    if not separator or len(fields) < 3:
        return None
    try:
        priority, seq, microseconds = (int(field) for field in fields[:3])
    except ValueError:
        return None
    if priority < 0 or priority >> 3 != _FACILITY_KERNEL:
        return None
    message = body.split("\n", 1)[0]
    # The kernel writes bytes that are not printable, newlines within a message too, as \xNN.
    unescaped = _ESCAPE.sub(lambda match: chr(int(match.group(1), 16)), message)
    return Record(seq, microseconds / 1e6, tuple(unescaped.split("\n")))


def split_records(text: str) -> Tuple[List[str], str]:
    """Cut a chunk of a log file into records; the second part begins a record that is not complete yet."""
    complete, newline, rest = text.rpartition("\n")
    if not newline:
        return [], text
    records: List[str] = []
    for line in complete.split("\n"):
        if line.startswith(" ") and records:
            records[-1] += "\n" + line
        elif line:
            records.append(line)
    return records, rest


class KernelLog:
    """An open kernel log.

    The character device returns one record a read, and EPIPE when records were overwritten before they were
    read. A regular file in the same format is read in chunks; it cannot be waited for, so `polled` says to
    look again soon.

    Args:
        path: `/dev/kmsg` or a file in its format.
        after_seq: records up to this number were seen by an earlier run in this boot.
    """

    def __init__(self, path: str, after_seq: int = -1) -> None:
        self.seq = after_seq
        self.lost = False
        self.at_end = False
        self._rest = ""
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.polled = not stat.S_ISCHR(os.fstat(self.fd).st_mode)

    def close(self) -> None:
        """Close the log."""
        os.close(self.fd)

    def read(self) -> List[Record]:
        """New records of the kernel; at most a few thousand at once, so call again until `at_end`."""
        texts = self._read_file() if self.polled else self._read_device()
        records = []
        for text in texts:
            record = parse_record(text)
            if record is not None and record.seq > self.seq:
                records.append(record)
        if records:
            self.seq = records[-1].seq
        return records

    def take_lost(self) -> bool:
        """Were records lost since the last call?"""
        lost, self.lost = self.lost, False
        return lost

    def _read_file(self) -> List[str]:
        chunk = os.read(self.fd, _RECORD_BYTES)
        self.at_end = not chunk
        texts, self._rest = split_records(self._rest + chunk.decode("utf-8", "replace"))
        return texts

    def _read_device(self) -> List[str]:
        texts: List[str] = []
        self.at_end = False
        while len(texts) < _MAX_RECORDS:
            try:
                texts.append(os.read(self.fd, _RECORD_BYTES).decode("utf-8", "replace"))
            except BlockingIOError:
                self.at_end = True
                break
            except OSError as error:
                if error.errno != errno.EPIPE:
                    raise
                self.lost = True
        return texts
