"""What the nodes' BMCs must be for machines to be switched off and on, judged from facts; no BMC is asked."""

from collections.abc import Iterator

from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.core.site_facts import (
    BmcFacts,
    Precondition,
    SiteFacts,
    fail,
    naming,
    ok,
    unknown,
    value,
    warn,
)


def judge_machines(facts: SiteFacts, policy: Policy) -> tuple[Precondition, ...]:
    """Every precondition of power cycles; none where no BMC is configured."""
    bmcs = facts.bmcs
    if bmcs is None:
        return ()
    return (
        _secrets(bmcs, policy),
        _serials(bmcs, policy),
        *_named(facts, bmcs, policy),
        _power_button(facts, bmcs),
    )


def _switches_power(policy: Policy) -> bool:
    by_network = policy.reimage_by_pxe and Rung.REIMAGE.value in policy.rungs
    return Rung.POWER.value in policy.rungs or by_network


def _secrets(bmcs: BmcFacts, policy: Policy) -> Precondition:
    problems = bmcs.secret_problems
    if not problems:
        return ok("bmc_credentials", "can be read by this user")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    judged = fail if _switches_power(policy) else warn
    return judged(
        "bmc_credentials", problems[0] + more, "as that line says; then `slurm-lifecycle bmc check`"
    )


def _serials(bmcs: BmcFacts, policy: Policy) -> Precondition:
    without = sorted(bmcs.nodes - policy.bmc)
    text = f"{len(bmcs.nodes) - len(without)} of {len(bmcs.nodes)} machines are on record"
    if not without:
        return ok("bmc_serials", text)
    return warn(
        "bmc_serials",
        f"{text}; the others are never switched off and on{naming(without)}",
        "slurm-lifecycle bmc record --all",
    )


def _named(facts: SiteFacts, bmcs: BmcFacts, policy: Policy) -> Iterator[Precondition]:
    """Nodes that are ours and have no BMC, and BMCs of nodes that there are not."""
    if facts.nodes is None:
        yield unknown("bmc_nodes", "the nodes could not be read")
        return
    ours = {
        name
        for name, view in facts.nodes.items()
        if view.partitions and ("*" in policy.partitions or set(view.partitions) <= set(policy.partitions))
    }
    without = sorted(ours - bmcs.nodes)
    strangers = sorted(bmcs.nodes - set(facts.nodes))
    if without and _switches_power(policy):
        text = f"{len(without)} of {len(ours)} nodes have no BMC, so their power rung is passed over"
        yield warn("bmc_nodes", text + naming(without), "name them in a [[group]] of bmc.toml")
    elif strangers:
        text = f"Slurm has no such node: {len(strangers)} of {len(bmcs.nodes)} with a BMC"
        yield warn("bmc_nodes", text + naming(strangers), "correct nodes = in bmc.toml")
    else:
        yield ok("bmc_nodes", f"{len(bmcs.nodes)} BMCs, each of a node that Slurm has")


def _power_button(facts: SiteFacts, bmcs: BmcFacts) -> Precondition:
    """Two masters of one power button: Slurm would switch off what we switch on, and the other way round."""
    name, program = "power_button", value(facts.config, "SuspendProgram")
    if not program:
        return ok(name, "Slurm's power saving is off: nobody else switches these machines")
    if bmcs.suspendable is None:
        return unknown(name, f"{program} may switch them: which nodes are excepted could not be read")
    shared = sorted(bmcs.suspendable)
    if not shared:
        return ok(name, "Slurm's power saving leaves these machines alone")
    return warn(
        name,
        f"Slurm's power saving ({program}) may switch {len(shared)} of the machines whose BMC we have"
        f"{naming(shared)}: one of us undoes what the other does",
        "SuspendExcNodes=<those nodes>  (or SuspendExcParts=<their partitions>)",
    )
