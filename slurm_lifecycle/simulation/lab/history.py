"""A site's own failure rates, from the incidents that its daemon has recorded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_lifecycle.core.fault_catalog import FaultClass, fault_for
from slurm_lifecycle.core.model import Incident
from slurm_lifecycle.core.policy import DAY_S
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.simulation.lab.site_files import published_rates
from slurm_lifecycle.simulation.machines.faults import KINDS, FaultKind, HostEffect, SeenBy, kinds_of_code

# With fewer the rates would be chance.
LEAST_INCIDENTS = 10
LEAST_DAYS = 7.0
# What Slurm saw: the kinds that look like that from there.
_BY_HOST = {"NO_RESPONSE": (HostEffect.DIES, HostEffect.SILENT), "SELF_REBOOT": (HostEffect.REBOOTS,)}


@dataclass(frozen=True, slots=True)
class History:
    """Rates taken from a store.

    Attributes:
        rates: failures per 1,000 node-days by kind of fault.
        counted: incidents that they are from.
        left_out: incidents of codes that no kind of fault stands for, by code.
    """

    rates: Mapping[str, float]
    node_days: float
    counted: int
    left_out: Mapping[str, int]


def history_of(incidents: Iterable[Incident], nodes: int, began_s: float, ended_s: float) -> History:
    """The rates of a fleet's recorded time.

    A store holds what was seen. The kinds that nobody sees (an application's own faults, corruption that only
    the loss curve shows) keep their published rates.

    Args:
        incidents: all that were opened in that time.
        nodes: how many there are.
        began_s, ended_s: the time that the store reaches over.

    Raises:
        ConfigError: there is too little of it to tell rates from.
    """
    inside = [one for one in incidents if began_s <= one.opened_at <= ended_s]
    days = (ended_s - began_s) / DAY_S
    if len(inside) < LEAST_INCIDENTS or days < LEAST_DAYS or nodes < 1:
        raise ConfigError(
            f"--rates-from-store: the store holds {len(inside)} incidents of {max(days, 0):.1f} days; at "
            f"least {LEAST_INCIDENTS} of {LEAST_DAYS:g} days are needed, leave the option out"
        )
    node_days = nodes * days
    rates = {key: 0.0 for key, kind in KINDS.items() if kind.count}
    left_out: dict[str, int] = {}
    for one in inside:
        kinds = _kinds_of(one)
        total = sum(kind.count for kind in kinds)
        if not total:
            left_out[one.code] = left_out.get(one.code, 0) + 1
        for kind in kinds:
            rates[kind.key] += 1000.0 * kind.count / total / node_days if total else 0.0
    _keep_unseen(rates)
    counted = len(inside) - sum(left_out.values())
    return History(rates, node_days, counted, dict(sorted(left_out.items())))


def _keep_unseen(rates: dict[str, float]) -> None:
    for key, rate in published_rates().items():
        if KINDS[key].seen_by in (SeenBy.NOBODY, SeenBy.PERSON):
            rates[key] = rate


def _kinds_of(incident: Incident) -> tuple[FaultKind, ...]:
    """The kinds that an incident may have been: by its code, by what Slurm saw, else by its class."""
    known = tuple(kind for kind in kinds_of_code(incident.code) if kind.count)
    if known:
        return known
    common = [kind for kind in KINDS.values() if kind.count]
    effects = _BY_HOST.get(incident.code)
    if effects is not None:
        return tuple(kind for kind in common if kind.host in effects)
    if incident.code == "LOW_RESOURCE":
        return tuple(kind for kind in common if kind.takes_gpu)
    fault_class = fault_for(incident.code).fault_class
    if fault_class in (FaultClass.UNKNOWN, FaultClass.TRANSIENT) or incident.code == "MANUAL":
        return ()
    return tuple(kind for kind in common if kind.code and fault_for(kind.code).fault_class is fault_class)
