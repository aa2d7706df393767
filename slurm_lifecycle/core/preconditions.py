"""What a site's Slurm must be for the suite to act safely, judged from facts that the edge gathered.

Each rule was seen to matter on real daemons of 22.05 to 26.05; its text says why.
"""

import re
from collections.abc import Iterator, Mapping

from slurm_lifecycle.core.formats import parse_verdict, with_mark
from slurm_lifecycle.core.machine_preconditions import judge_machines
from slurm_lifecycle.core.model import NodeView, Rung
from slurm_lifecycle.core.policy import Policy
from slurm_lifecycle.core.site_facts import (
    Grade,
    Precondition,
    Program,
    SiteFacts,
    fail,
    naming,
    ok,
    paths,
    seconds,
    unknown,
    value,
    warn,
    words,
)

# The live tests run on the first; what we rely on was measured on real daemons of the others.
TESTED_RELEASES = ("22.05",)
MEASURED_RELEASES = ("24.11", "25.11", "26.05")
_OLDEST = (22, 5)
# slurmctld keeps an infinite PrologEpilogTimeout as this (NO_VAL16).
_INFINITE_S = 65534
# Flags that imply Alloc on every release that we know (DeferBatch does so only from 26.05).
_ALLOC_FLAGS = frozenset({"alloc", "contain", "runinjob", "x11", "forcerequeueonfail"})
# `scontrol show config` tells whole seconds, so a second of difference is none.
_CLOCK_WARN_S, _CLOCK_FAIL_S = 2.5, 30.0
_CLAIM = re.compile(r"slcd\[[^\]]*\]")
_HOOKS_FOLDER = "/usr/libexec/slurm-lifecycle"


def judge(facts: SiteFacts, policy: Policy) -> tuple[Precondition, ...]:
    """Judge every precondition, those about the controller first."""
    return (
        _version(value(facts.config, "SLURM_VERSION")),
        _rights(facts),
        _federation(facts.federation),
        _clock(facts.clock_skew_s),
        _reboot_program(facts, policy),
        _resume_timeout(facts.config, policy),
        _slurmd_timeout(facts.config),
        _return_to_service(facts.config),
        _power_saving(facts.config),
        _prolog_flags(facts.config),
        _wired(facts, "prolog", "Prolog", "a faulty node takes jobs until it is drained"),
        _wired(facts, "epilog", "Epilog", "a node that a job broke takes the next one"),
        _wired(facts, "healthcheck", "HealthCheckProgram", "nobody notices an agent that died"),
        _health_check_interval(facts.config),
        _health_check_state(facts.config),
        _hook_timeout(facts.config),
        _prolog_requeue(facts.config),
        *_nodes(facts, policy),
        *judge_machines(facts, policy),
        fail("store", facts.store_problem, "") if facts.store_problem else ok("store", "can be written"),
    )


# ---------------------------------------------------------------- the controller and our rights


def _version(version: str) -> Precondition:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return unknown("version", f"Slurm says version {version!r}")
    if found[0] in TESTED_RELEASES:
        return ok("version", f"Slurm {version}, on which the live tests run")
    if found[0] in MEASURED_RELEASES:
        return ok("version", f"Slurm {version}, on which what we rely on was measured")
    if (int(found[1]), int(found[2])) < _OLDEST:
        return fail("version", f"Slurm {version} is older than 22.05", "upgrade Slurm to 22.05 or newer")
    known = ", ".join((*TESTED_RELEASES, *MEASURED_RELEASES))
    return warn(
        "version",
        f"Slurm {version} was never tried ({known} were)",
        'keep mode = "observe" until `slurm-lifecycle nodes` shows what you expect',
    )


def _rights(facts: SiteFacts) -> Precondition:
    slurm_user = value(facts.config, "SlurmUser").split("(")[0]
    if facts.user in ("root", slurm_user):
        return ok("rights", f"runs as {facts.user}, which may drain and reserve")
    admin = f"sacctmgr modify user {facts.user} set AdminLevel=Admin"
    remedy = f"run as root or {slurm_user or 'SlurmUser'}, or: {admin}"
    if facts.admin_level is None:
        return unknown("rights", f"AdminLevel of {facts.user} could not be read", remedy)
    if facts.admin_level.lower().startswith("admin"):
        return ok("rights", f"{facts.user} has AdminLevel=Admin")
    return fail("rights", f"{facts.user} may neither drain nor reserve", remedy)


def _federation(federation: str | None) -> Precondition:
    if federation is None:
        return unknown("federation", "whether the cluster is federated could not be read")
    if not federation:
        return ok("federation", "not in a federation")
    return fail(
        "federation",
        f"in federation {federation}: its jobs may belong to sibling clusters, which was never tested",
        'keep mode = "observe"; federations are not supported',
    )


def _clock(skew_s: float | None) -> Precondition:
    if skew_s is None:
        return unknown("clock", "slurmctld's clock could not be read")
    if abs(skew_s) < _CLOCK_WARN_S:
        return ok("clock", "this host and slurmctld agree on the time")
    where = "ahead of" if skew_s > 0 else "behind"
    text = f"slurmctld's clock is {abs(skew_s):.0f} s {where} this host's; boot times are compared"
    judged = fail if abs(skew_s) >= _CLOCK_FAIL_S else warn
    return judged("clock", text, "synchronise both hosts (chronyc tracking shows how they are)")


# ---------------------------------------------------------------- reboots and outages


def _wants_reboot(policy: Policy) -> bool:
    return Rung.REBOOT.value in policy.rungs


def _reboot_program(facts: SiteFacts, policy: Policy) -> Precondition:
    judged = fail if _wants_reboot(policy) else warn
    program = value(facts.config, "RebootProgram")
    executable = facts.programs.get(program, Program()).executable
    if not program:
        return judged(
            "reboot_program",
            "none: a reboot would stay REBOOT_ISSUED until ResumeTimeout",
            "RebootProgram=/usr/sbin/reboot",
        )
    if "reboot_from_controller" in words(facts.config, "SlurmctldParameters"):
        return warn(
            "reboot_program",
            "reboot_from_controller runs it on the controller, which was never tested",
            "remove reboot_from_controller from SlurmctldParameters",
        )
    if executable is False:
        return judged(
            "reboot_program",
            f"{program} cannot be executed here; slurmd only logs that, and the node stays REBOOT_ISSUED",
            f"chmod 755 {program}  (on every node)",
        )
    text = f"{program}; this host cannot see whether every node can execute it"
    return ok("reboot_program", text) if executable else unknown("reboot_program", text)


def _resume_timeout(config: Mapping[str, str], policy: Policy) -> Precondition:
    rules = (rule for path in policy.paths.values() for rule in path if rule.rung is Rung.REBOOT)
    deadline_s = int(max((rule.deadline_s for rule in rules), default=0))
    resume_s = seconds(config, "ResumeTimeout")
    if resume_s is None:
        return unknown("resume_timeout", "could not be read")
    if resume_s > deadline_s:
        return ok("resume_timeout", f"{resume_s} s is above our reboot deadline of {deadline_s} s")
    judged = fail if _wants_reboot(policy) else warn
    return judged(
        "resume_timeout",
        f"{resume_s} s is not above our reboot deadline of {deadline_s} s: Slurm gives a slow boot up "
        "before we do, and up to 23.11.5 drops the drain as it does so",
        f"ResumeTimeout={deadline_s + 300}",
    )


def _slurmd_timeout(config: Mapping[str, str]) -> Precondition:
    timeout_s = seconds(config, "SlurmdTimeout")
    if timeout_s is None:
        return unknown("slurmd_timeout", "could not be read")
    if timeout_s == 0:
        return warn("slurmd_timeout", "0: a dead node never becomes DOWN", "SlurmdTimeout=300")
    return ok("slurmd_timeout", f"{timeout_s} s; after a longer outage a drained node is DOWN as well")


def _return_to_service(config: Mapping[str, str]) -> Precondition:
    name, found = "return_to_service", value(config, "ReturnToService")
    if found == "0":
        return ok(name, "0: a node that was DOWN stays so until its checks passed and we resume it")
    if found == "1":
        return ok(name, "1: only a node DOWN for not responding returns by itself; a drained one stays")
    if found == "2":
        return warn(
            name,
            "2: every DOWN node whose slurmd answers returns unchecked, so DOWN is no quarantine; up to "
            "23.11.5 a boot later than ResumeTimeout loses its drain (our fence still keeps jobs off)",
            "ReturnToService=0",
        )
    return unknown(name, f"{found!r} is not understood")


def _power_saving(config: Mapping[str, str]) -> Precondition:
    suspend = value(config, "SuspendTime").lower()
    if suspend in ("", "0") or suspend.startswith(("infinite", "-1", "none")):
        return ok("power_saving", "off")
    if {"drain", "down"} <= words(config, "SuspendExcStates"):
        return ok("power_saving", "leaves drained and DOWN nodes alone")
    return warn(
        "power_saving",
        "switches drained nodes off while they wait for their repair",
        "SuspendExcStates=DRAIN,DOWN,MAINTENANCE  (from 23.02; before that SuspendExcNodes)",
    )


# ---------------------------------------------------------------- hooks


def _prolog_flags(config: Mapping[str, str]) -> Precondition:
    if words(config, "PrologFlags") & _ALLOC_FLAGS:
        return ok("prolog_flags", "the prolog runs on every node of a job before it starts")
    flags = ",".join(filter(None, (value(config, "PrologFlags"), "Alloc")))
    return fail(
        "prolog_flags",
        "without Alloc the prolog runs only where a step lands: a job's other nodes are never gated",
        f"PrologFlags={flags}",
    )


def _wired(facts: SiteFacts, script: str, key: str, otherwise: str) -> Precondition:
    """Whether Slurm runs our hook, by itself or from a site's own program."""
    programs = paths(facts.config, key)
    line = f"{key}={_HOOKS_FOLDER}/{script}.sh"
    if not programs:
        return fail(script, f"no {key}: {otherwise}", line)
    named = " ".join(programs)
    seen = [facts.programs.get(path, Program()) for path in programs]
    if any(one.executable is False for one in seen):
        return fail(script, f"{named} cannot be executed here", f"chmod 755 {named}  (on every node)")
    if any(one.ours for one in seen) or f"{_HOOKS_FOLDER}/{script}.sh" in programs:
        return ok(script, named)
    remedy = f"{line}  (or call that script from {programs[0]})"
    if any(one.ours is None for one in seen):
        return unknown(script, f"{named} cannot be read here; unless it calls ours, {otherwise}", remedy)
    return fail(script, f"{named} does not call ours: {otherwise}", remedy)


def _health_check_interval(config: Mapping[str, str]) -> Precondition:
    interval_s = seconds(config, "HealthCheckInterval")
    if not interval_s:
        text = "0: the health check never runs, up to 25.05 not at slurmd's start either"
        return fail("healthcheck_interval", text, "HealthCheckInterval=60")
    if interval_s > 300:
        return warn(
            "healthcheck_interval", f"{interval_s} s: a dead agent is seen late", "HealthCheckInterval=60"
        )
    return ok("healthcheck_interval", f"{interval_s} s")


def _health_check_state(config: Mapping[str, str]) -> Precondition:
    if "any" in words(config, "HealthCheckNodeState"):
        return ok("healthcheck_state", "runs in every node state")
    states = value(config, "HealthCheckNodeState")
    return warn("healthcheck_state", f"{states!r} leaves DOWN nodes out", "HealthCheckNodeState=ANY,CYCLE")


def _hook_timeout(config: Mapping[str, str]) -> Precondition:
    # From 25.05 there are two keys; the old one sets both.
    keys = [key for key in ("PrologEpilogTimeout", "PrologTimeout", "EpilogTimeout") if key in config]
    bounded = [0 < (seconds(config, key) or _INFINITE_S) < _INFINITE_S for key in keys]
    if keys and all(bounded):
        return ok("hook_timeout", "a prolog or epilog that hangs is ended")
    return warn(
        "hook_timeout",
        "a prolog or epilog that hangs, a site's own too, is never ended",
        "PrologEpilogTimeout=300",
    )


def _prolog_requeue(config: Mapping[str, str]) -> Precondition:
    if "nohold_on_prolog_fail" in words(config, "SchedulerParameters"):
        return ok("prolog_requeue", "a job that our prolog refused runs elsewhere by itself")
    before = value(config, "SchedulerParameters")
    return warn(
        "prolog_requeue",
        "a batch job that our prolog refused is queued again, but held until somebody releases it",
        f"SchedulerParameters={','.join(filter(None, (before, 'nohold_on_prolog_fail')))}",
    )


# ---------------------------------------------------------------- nodes


def _nodes(facts: SiteFacts, policy: Policy) -> Iterator[Precondition]:
    nodes = facts.nodes
    if nodes is None:
        yield unknown("nodes", "the nodes could not be read")
        return
    known = {name for view in nodes.values() for name in view.partitions}
    missing = sorted(set(policy.partitions) - known - {"*"})
    if missing:
        there = ", ".join(sorted(known)) or "none"
        yield fail("partitions", f"no such partition: {' '.join(missing)}", f"partitions: one of {there}")
    silent = sorted(name for name, view in nodes.items() if parse_verdict(view.extra) is None)
    text = f"{len(nodes) - len(silent)} of {len(nodes)} nodes tell their verdict{naming(silent, 'silent: ')}"
    if silent:
        yield warn("agents", text, "systemctl enable --now slurm-lifecycle-agent  (on those nodes)")
    else:
        yield ok("agents", text)
    yield _extra_field(facts.config, nodes)
    foreign = sorted(
        name for name, view in nodes.items() if _CLAIM.sub("", with_mark(view.comment, None)).strip()
    )
    if foreign:
        text = "somebody else writes the nodes' Comment; we keep theirs, they must keep our mark at its end"
        yield warn("comment_field", text + naming(foreign), "let that tool append to Comment, not replace it")
    else:
        yield ok("comment_field", "nobody else writes the nodes' Comment")


def _extra_field(config: Mapping[str, str], nodes: Mapping[str, NodeView]) -> Precondition:
    if "extra_constraints" in words(config, "SchedulerParameters"):
        return fail(
            "extra_field",
            "extra_constraints makes Slurm read the nodes' Extra as JSON; our verdict there is text",
            "remove extra_constraints from SchedulerParameters",
        )
    foreign = sorted(
        name
        for name, view in nodes.items()
        if view.extra and (parse_verdict(view.extra) is None or "; slc1 " in view.extra)
    )
    if not foreign:
        return ok("extra_field", "nobody else writes the nodes' Extra")
    return warn(
        "extra_field",
        "somebody else writes the nodes' Extra; we keep theirs, but `slurmd --extra` (23.11 to 25.11) wipes "
        f"our verdict at every registration{naming(foreign)}",
        "start slurmd without --extra on those nodes",
    )


def worst(items: tuple[Precondition, ...]) -> Grade:
    """The whole site's grade; what could not be seen from here is not held against it."""
    grades = {item.grade for item in items}
    return next((grade for grade in (Grade.FAIL, Grade.WARN) if grade in grades), Grade.OK)
