"""Renders node records as Slurm does, from the order of fields in its own print function."""

from dataclasses import dataclass

HEAD = """\
NodeName={name} Arch=x86_64 CoresPerSocket=56 
   CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=0.31
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=gpu:h100:8(S:0-1)
   NodeAddr={name} NodeHostName={name} Version=22.05.8
   OS=Linux 6.1.0-25-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.106-3 (2024-08-26) 
   RealMemory=2063937 AllocMem=0 FreeMem=2031000 Sockets=2 Boards=1
   State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=main,long 
   BootTime=2026-08-01T06:00:00 SlurmdStartTime=2026-08-01T06:03:20
   LastBusyTime=2026-08-02T00:00:00
   CfgTRES=cpu=224,mem=2063937M,billing=224,gres/gpu=8
   AllocTRES=
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"""  # noqa: W291 - scontrol prints these blanks


@dataclass(frozen=True)
class Texts:
    """The fields that people write."""

    reason: str = ""
    comment: str = ""
    extra: str = ""
    stamp: str = "root@2026-08-02T10:11:12"


def render(name: str, texts: Texts, state: str = "IDLE") -> str:
    """One record."""
    out = HEAD.format(name=name, state=state)
    # strtok: runs of line breaks count as one, and the stamp stands behind the first piece.
    pieces = [piece for piece in texts.reason.split("\n") if piece]
    for index, piece in enumerate(pieces):
        out += f"\n   Reason={piece} [{texts.stamp}]" if index == 0 else f"\n          {piece}"
    out += f"\n   Comment={texts.comment}" if texts.comment else ""
    out += f"\n   Extra={texts.extra}" if texts.extra else ""
    return out + "\n\n"
