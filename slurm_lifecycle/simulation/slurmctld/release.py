"""What differs between Slurm's releases, as data: measured on daemons of each, where not said otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Release:
    """One release's manners.

    Attributes:
        name: as people say it, `22.05`.
        version: as slurmd reports it.
        keeps_stale_reason: without slurmdbd the Reason stays on a node that was given back, until the next
            job starts there.
        asap_clears_drain: `reboot ASAP` of a node that is drained already gives it back after the boot.
        timeout_drops_drain: a reboot that does not return in time leaves DOWN without DRAIN.
        timeout_slack_s: how long after ResumeTimeout that is noticed.
        appends_not_responding: an outage adds ` : Not responding` to a Reason that is there.
        replaces_repeated: what is to be added and is there already, as `reboot issued` at a second reboot,
            takes the place of the whole Reason (measured); other releases leave it.
        rewrites_at_invalid: a registration with too little writes its own Reason over any other. Read in the
            sources of 24.11.
        spares_drained: a drained node, or one in a MAINT reservation, may boot by itself and come back.
        idle_while_issued: `State=IDLE` is accepted while the node boots, whose boot is then unexpected.
        edits_reservations: `Nodes+=`, `Nodes-=` and `Comment=` of a reservation.
        refuses_nobody: no reservation for the user `nobody`.
    """

    name: str
    version: str
    keeps_stale_reason: bool
    asap_clears_drain: bool
    timeout_drops_drain: bool
    timeout_slack_s: float
    appends_not_responding: bool
    replaces_repeated: bool
    rewrites_at_invalid: bool
    spares_drained: bool
    idle_while_issued: bool
    edits_reservations: bool
    refuses_nobody: bool


_ALL = (
    Release(
        name="22.05",
        version="22.05.8",
        keeps_stale_reason=False,
        asap_clears_drain=True,
        timeout_drops_drain=True,
        timeout_slack_s=17.0,
        appends_not_responding=False,
        replaces_repeated=True,
        rewrites_at_invalid=False,
        spares_drained=False,
        idle_while_issued=True,
        edits_reservations=False,
        refuses_nobody=False,
    ),
    Release(
        name="24.11",
        version="24.11.5",
        keeps_stale_reason=True,
        asap_clears_drain=False,
        timeout_drops_drain=False,
        timeout_slack_s=16.0,
        appends_not_responding=True,
        replaces_repeated=False,
        rewrites_at_invalid=True,
        spares_drained=True,
        idle_while_issued=True,
        edits_reservations=True,
        refuses_nobody=False,
    ),
    Release(
        name="25.11",
        version="25.11.7",
        keeps_stale_reason=True,
        asap_clears_drain=False,
        timeout_drops_drain=False,
        timeout_slack_s=17.0,
        appends_not_responding=True,
        replaces_repeated=False,
        rewrites_at_invalid=True,
        spares_drained=True,
        idle_while_issued=False,
        edits_reservations=True,
        refuses_nobody=True,
    ),
    Release(
        name="26.05",
        version="26.05.5",
        keeps_stale_reason=False,
        asap_clears_drain=False,
        timeout_drops_drain=False,
        timeout_slack_s=2.0,
        appends_not_responding=True,
        replaces_repeated=False,
        rewrites_at_invalid=True,
        spares_drained=True,
        idle_while_issued=False,
        edits_reservations=True,
        refuses_nobody=True,
    ),
)

RELEASES: Mapping[str, Release] = {one.name: one for one in _ALL}
