"""The agents of simulated nodes: their rules are those of the real agent, and they speak when it would."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from slurm_lifecycle.core.fault_catalog import FAULTS
from slurm_lifecycle.core.formats import parse_verdict
from slurm_lifecycle.core.model import NodeView, Verdict
from slurm_lifecycle.node import drain as real_drain
from slurm_lifecycle.node import slurm_node
from slurm_lifecycle.node.findings import Finding, Sign
from slurm_lifecycle.node.release import HELD_FOR_OUR_REFUSAL
from slurm_lifecycle.node.verdict import Segment, join_extra, judge, split_extra
from slurm_lifecycle.simulation.machines import agent_rules
from slurm_lifecycle.simulation.machines.agent import AgentSettings, NodeAgents
from slurm_lifecycle.simulation.machines.faults import KINDS
from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.slurmctld.controller import Slurmctld
from slurm_lifecycle.simulation.slurmctld.settings import JobSpec, NodeSpec, SlurmConf
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline
from tests.unit.simulation.toy import QUICK, fault_with

# ---------------------------------------------------------------- the rules, against the real agent's

TOKENS: tuple[str, ...] = (
    "IDLE",
    "ALLOCATED",
    "DRAIN",
    "DOWN",
    "FAIL",
    "COMPLETING",
    "NOT_RESPONDING",
    "MAINTENANCE",
    "PLANNED",
)
TOKENS += ("REBOOT_ISSUED", "REBOOT_REQUESTED", "INVALID_REG", "UNKNOWN", "POWERED_DOWN", "SOMETHING_NEW")
REASONS = ("", "Prolog error", "slc:XID79 gpu3 fell off", "fan noise", "Not responding", "xslc:XID79")
COMMENTS: tuple[str, ...] = (
    "",
    "rack=12",
    "slc1[a;b;3;draining]",
    "x slc1[a;b;3;draining;hold]",
    "slc1[a;-;0;hold;hold]",
)
COMMENTS += ("slc1[stop]", "hold", "slc1[withhold;stopped]")
NOW = 1_000_000.0


def record_of(view: NodeView) -> slurm_node.NodeRecord:
    marks = frozenset(
        item for found in slurm_node._MARK.finditer(view.comment) for item in found[1].split(";")
    )
    return slurm_node.NodeRecord(view.state, view.reason, view.reason_at_s, view.comment, view.extra, marks)


def test_a_drain_is_decided_as_the_real_agent_does() -> None:
    rng = random.Random(1)
    seen = set()
    for _ in range(5000):
        tokens = frozenset(rng.sample(TOKENS, rng.randrange(0, 4)))
        reason_at = rng.choice((None, NOW - 1, NOW - 59, NOW - 61, NOW + 3, NOW + 60))
        view = NodeView("n1", tokens, rng.choice(REASONS), reason_at, rng.choice(COMMENTS))
        refused = rng.random() < 0.5
        real = real_drain.decide(record_of(view), NOW, refused)
        assert agent_rules.decide(view, NOW, refused_here=refused).value == real.act.value, (view, real)
        seen.add(real.act)
    assert seen == set(real_drain.Act)


def test_the_worst_finding_and_what_is_drained_for_are_those_of_the_real_agent() -> None:
    rng = random.Random(2)
    for _ in range(1000):
        drawn = [
            (rng.choice(sorted(FAULTS)), rng.choice(("gpu0", "gpu1", "-")), number, float(rng.randrange(3)))
            for number in range(rng.randrange(5))
        ]
        done = {number for number in range(5) if rng.random() < 0.3}
        ours = [agent_rules.Found(code, where, "", number, at, at) for code, where, number, at in drawn]
        theirs = [Finding("c", Sign(code, where), str(number), at, at) for code, where, number, at in drawn]
        verdict = judge(theirs, may_gate=True)
        assert agent_rules.published(ours) == verdict.published
        due = real_drain.wanted(theirs, frozenset(str(one) for one in done))
        assert [one.occurrence for one in agent_rules.wanted(ours, frozenset(done))] == [
            int(one.occurrence) for one in due
        ]


@pytest.mark.parametrize(
    "extra",
    ["", "rack=12", "slc1 aaaa-bbbb 3 ok - -", "rack=12; slc1 aaaa-bbbb 3 drain XID79 gpu3", "a; slc1 x"],
)
def test_extra_is_joined_as_the_real_agent_does(extra: str) -> None:
    segment = Segment("cccc-dddd", 4, "warn", "XID31", "gpu1")
    assert agent_rules.joined(extra, segment.format()) == join_extra(split_extra(extra)[0], segment)


def test_figures_are_those_of_the_real_agent() -> None:
    assert agent_rules.MAX_DRAINS_PER_BOOT == real_drain.MAX_DRAINS_PER_BOOT
    assert agent_rules.PROLOG_ERROR_WITHIN_S == real_drain.PROLOG_ERROR_WITHIN_S
    assert agent_rules.PROLOG_ERROR == real_drain.PROLOG_ERROR
    assert {"launch failed requeued held", "launch_failed_requeued_held"} == HELD_FOR_OUR_REFUSAL


# ---------------------------------------------------------------- in a fleet


class World:
    """Three nodes with agents under a slurmctld that behaves."""

    def __init__(self, settings: AgentSettings, count: int = 3) -> None:
        self.timeline = Timeline()
        specs = [NodeSpec(f"n{number}") for number in range(1, count + 1)]
        self.ctld = Slurmctld(self.timeline, specs, SlurmConf(), stream(1, "ctld", "x"))
        self.machines = Machines(self.timeline, self.ctld, specs, QUICK, 1)
        self.ctld.side = self.machines
        self.ctld.on_job_start.append(self.machines.strikes.job_started)
        self.agents = NodeAgents(self.machines, self.ctld, settings)
        self.machines.start()
        self.agents.start()
        self.pass_time(5)

    def pass_time(self, seconds: float) -> None:
        self.timeline.run_until(self.timeline.now + seconds)

    def view(self, name: str = "n1") -> NodeView:
        return self.ctld.view(name)

    def verdict(self, name: str = "n1") -> Verdict:
        found = parse_verdict(self.view(name).extra)
        assert found is not None
        return found

    def said(self, name: str = "n1") -> tuple[str, str, str]:
        verdict = self.verdict(name)
        return verdict.level.value, verdict.code, verdict.component


@pytest.fixture
def world() -> World:
    return World(AgentSettings())


def test_every_agent_says_that_all_is_well(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        assert world.said(name) == ("ok", "", "-")
        assert world.verdict(name).boot_id == world.machines.machine(name).boot_id


def test_a_fault_of_the_hardware_is_said_and_drained_for_at_once(world: World) -> None:
    fault_with(world.machines, "n1", "gpu_off_bus", 0.0)
    world.pass_time(4)
    assert world.said()[:2] == ("drain", "XID79")
    assert "DRAIN" in world.view().state
    assert world.view().reason.startswith("slc:XID79 gpu")
    assert world.verdict().seq == 2


def test_a_fault_with_a_common_cause_is_only_said(world: World) -> None:
    fault_with(world.machines, "n1", "driver_down", 0.0)
    world.pass_time(70)
    assert world.said() == ("drain", "DRIVER_DOWN", "-")
    assert "DRAIN" not in world.view().state


def test_agents_that_only_watch_do_not_drain() -> None:
    world = World(AgentSettings(drains=False))
    fault_with(world.machines, "n1", "gpu_off_bus", 0.0)
    world.pass_time(100)
    assert world.said()[1] == "XID79"
    assert "DRAIN" not in world.view().state


def test_a_new_boot_brings_a_verdict_of_its_own(world: World) -> None:
    fault_with(world.machines, "n1", "gpu_off_bus", 0.0)
    world.pass_time(4)
    old = world.verdict().boot_id
    world.ctld.reboot("n1")
    world.pass_time(120)
    assert world.said() == ("ok", "", "-")
    assert world.verdict().boot_id == world.machines.machine("n1").boot_id != old
    assert "DRAIN" in world.view().state


def test_what_a_boot_did_not_mend_is_said_again_by_what_it_looks_like_now(world: World) -> None:
    fault_with(world.machines, "n1", "gpu_off_bus", 0.9)
    world.pass_time(4)
    world.ctld.reboot("n1")
    world.pass_time(120)
    assert world.said()[1] == "GPU_COUNT"
    assert "INVALID_REG" in world.view().state


def test_the_first_verdict_stands_before_the_registration_or_some_seconds_after() -> None:
    stands = set()
    for share in (0.0, 1.0):
        world = World(AgentSettings(says_before=share))
        seen: list[bool] = []

        def watch(name: str, world: World = world, seen: list[bool] = seen) -> None:
            if "REBOOT_ISSUED" not in world.view().state and not seen:
                seen.append(world.verdict().boot_id == world.machines.machine("n1").boot_id)

        world.ctld.update_node("n1", "DRAIN", "x")
        world.ctld.reboot("n1")
        world.pass_time(15)
        assert "REBOOT_ISSUED" in world.view().state
        world.ctld.on_node_change.append(watch)
        world.pass_time(200)
        stands.add((share, seen[0]))
        assert world.verdict().boot_id == world.machines.machine("n1").boot_id
    assert stands == {(0.0, False), (1.0, True)}


def test_a_persons_drain_is_left_alone_and_looked_at_again_when_it_is_gone(world: World) -> None:
    world.ctld.update_node("n1", "DRAIN", "fan noise")
    fault_with(world.machines, "n1", "hbm_remap_failed", 0.0)
    world.pass_time(1000)
    assert world.view().reason == "fan noise"
    assert world.said()[1] == "REMAP_FAILURE"
    world.ctld.update_node("n1", "UNDRAIN")
    world.pass_time(40)
    assert world.view().reason.startswith("slc:REMAP_FAILURE")


def test_a_mark_forbids_to_drain(world: World) -> None:
    world.ctld.set_comment("n1", "slc1[i;-;0;hold;hold]")
    fault_with(world.machines, "n1", "hbm_remap_failed", 0.0)
    world.pass_time(1000)
    assert "DRAIN" not in world.view().state
    world.ctld.set_comment("n1", "")
    world.pass_time(40)
    assert "DRAIN" in world.view().state


def test_it_drains_once_for_a_fault_and_a_persons_undrain_stands(world: World) -> None:
    fault_with(world.machines, "n1", "hbm_remap_failed", 0.0)
    world.pass_time(100)
    world.ctld.update_node("n1", "UNDRAIN")
    world.pass_time(2000)
    assert "DRAIN" not in world.view().state
    fault_with(world.machines, "n1", replace(KINDS["gpu_off_bus"], component="gpu9"), 0.0)
    world.pass_time(100)
    assert world.view().reason.startswith("slc:XID79 gpu9")


def test_it_drains_at_most_three_times_a_boot(world: World) -> None:
    drains: list[str] = []
    world.agents.on_drain.append(lambda node, code: drains.append(node))
    for number in range(5):
        fault_with(world.machines, "n1", replace(KINDS["gpu_off_bus"], component=f"gpu{number}"), 0.0)
        world.pass_time(10)
        if "DRAIN" in world.view().state:
            world.ctld.update_node("n1", "UNDRAIN")
            world.pass_time(5)
    assert drains == ["n1"] * 3


def test_an_application_fault_is_said_and_forgotten_after_ten_minutes(world: World) -> None:
    fault_with(world.machines, "n1", "app_mmu_fault", 0.0)
    world.pass_time(10)
    assert world.said()[:2] == ("warn", "XID31")
    world.pass_time(500)
    world.machines.fault("n1", KINDS["app_mmu_fault"], world.said()[2])
    world.pass_time(500)
    assert world.said()[:2] == ("warn", "XID31")
    world.pass_time(200)
    assert world.said() == ("ok", "", "-")


def test_a_condition_that_is_over_reads_well_in_the_same_boot_and_a_logged_fault_does_not(
    world: World,
) -> None:
    condition = fault_with(world.machines, "n1", "gpu_sensor", 0.0)
    logged = fault_with(world.machines, "n2", "nvlink", 0.0)
    world.pass_time(70)
    world.machines.clear("n1", condition.key)
    world.machines.clear("n2", logged.key)
    world.pass_time(70)
    assert world.said("n1") == ("ok", "", "-")
    assert world.said("n2")[:2] == ("drain", "XID74")


def test_a_false_alarm_is_said_drained_for_and_goes_by_itself(world: World) -> None:
    world.agents.false_alarm("n1", "GPU_LOST", "gpu3", 300.0)
    assert world.said() == ("drain", "GPU_LOST", "gpu3")
    assert "DRAIN" in world.view().state
    assert not world.machines.faulty("n1")
    world.pass_time(310)
    assert world.said() == ("ok", "", "-")
    assert "DRAIN" in world.view().state


def test_a_dead_agent_says_nothing_and_catches_up_when_it_is_started(world: World) -> None:
    world.agents.kill("n1")
    fault_with(world.machines, "n1", "gpu_dead", 0.0)
    world.pass_time(1000)
    assert world.said() == ("ok", "", "-")
    world.agents.revive("n1")
    assert world.said()[1] == "GPU_LOST"


def test_an_agent_may_not_start_with_a_boot() -> None:
    world = World(AgentSettings(dead_at_boot=1.0))
    old = world.verdict().boot_id
    world.machines.self_reboot("n1")
    world.pass_time(300)
    assert world.verdict().boot_id == old
    world.agents.revive("n1")
    assert world.verdict().boot_id == world.machines.machine("n1").boot_id


def test_while_its_network_is_down_it_says_nothing_and_then_what_it_has_to(world: World) -> None:
    cable = world.machines.fault("n1", KINDS["leaf_switch"])
    fault_with(world.machines, "n1", "gpu_dead", 0.0)
    world.pass_time(200)
    assert world.said() == ("ok", "", "-")
    world.machines.clear("n1", cable.key)
    world.pass_time(60)
    assert world.said()[1] == "GPU_LOST"


def test_while_slurmctld_is_away_it_waits(world: World) -> None:
    world.agents.away = True
    fault_with(world.machines, "n1", "gpu_dead", 0.0)
    world.pass_time(200)
    assert world.said() == ("ok", "", "-")
    world.agents.back()
    world.pass_time(40)
    assert world.said()[1] == "GPU_LOST"
    assert "DRAIN" in world.view().state


def test_what_others_write_into_extra_is_kept_and_its_verdict_written_again(world: World) -> None:
    world.ctld.set_extra("n1", "rack=12")
    world.pass_time(1400)
    assert world.view().extra.startswith("rack=12; slc1 ")
    fault_with(world.machines, "n1", "gpu_dead", 0.0)
    world.pass_time(100)
    assert world.view().extra.startswith("rack=12; slc1 ")
    assert world.said()[1] == "GPU_LOST"


def test_hooks_hear_of_verdicts(world: World) -> None:
    heard: list[tuple[str, str, str, str]] = []
    world.agents.on_verdict.append(lambda *words: heard.append(words))
    fault_with(world.machines, "n2", replace(KINDS["gpu_dead"], component="gpu4"), 0.0)
    world.pass_time(100)
    assert heard == [("n2", "drain", "GPU_LOST", "gpu4")]


def test_a_broken_node_that_is_not_drained_yet_refuses_jobs_and_lets_them_go_again(world: World) -> None:
    # Nothing but a mark keeps it from draining; it is gone when the job comes.
    world.ctld.set_comment("n1", "slc1[i;-;0;hold;hold]")
    fault_with(world.machines, "n1", "hbm_remap_failed", 0.0)
    world.pass_time(100)
    assert world.agents.gate("n1", "1")
    world.ctld.set_comment("n1", "")
    job = world.ctld.submit(JobSpec("j", nodelist=("n1",)))
    world.pass_time(2)
    assert "DRAIN" in world.view().state
    world.pass_time(20)
    assert world.view().reason.startswith("slc:REMAP_FAILURE")
    world.ctld.update_job(job, nodelist=())
    world.pass_time(200)
    assert (world.ctld.jobs()[job].state, world.ctld.jobs()[job].restarts) == ("RUNNING", 1)


@pytest.mark.parametrize(
    "act",
    [
        lambda world: world.machines.remove("n1"),
        lambda world: world.ctld.remove_node("n1"),
    ],
)
def test_a_node_that_is_taken_out_is_no_matter(world: World, act: Callable[[World], None]) -> None:
    fault_with(world.machines, "n1", "gpu_off_bus", 0.0)
    act(world)
    world.agents.back()
    world.pass_time(1000)
    assert world.said("n2") == ("ok", "", "-")
