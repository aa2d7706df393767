"""Each kind of trouble does what it says, and no more."""

from collections.abc import Callable

import pytest

from slurm_lifecycle.core.machine import StepOutcome
from slurm_lifecycle.core.model import (
    AttemptOutcome,
    Identity,
    ProvisionState,
    ProvisionStatus,
    Records,
    Request,
)
from slurm_lifecycle.core.ownership import UNREADABLE
from slurm_lifecycle.core.plan import Notice, Plan
from slurm_lifecycle.errors import AmbiguousOutcome, PermanentError, StoreError, TransientError
from slurm_lifecycle.ports import TicketFacts
from slurm_lifecycle.simulation.desk import Desk
from slurm_lifecycle.simulation.fleet import Fleet, FleetSettings
from slurm_lifecycle.simulation.safety.trouble import STRENGTHS, Killed, TroubledSlurm, Troubles
from slurm_lifecycle.simulation.safety.trouble_site import (
    TroubledDesk,
    TroubledProvisioner,
    TroubledStore,
    WallClock,
)
from slurm_lifecycle.simulation.slurmctld import NodeSpec

OURS = "slc:XID79 gpu3 fell off the bus"


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []

    def looked(self, what: str, node: str) -> None:
        self.said.append(("looked", what, node))

    def sends(self, what: str, node: str, text: str) -> None:
        self.said.append(("sends", what, node))

    def happened(self, what: str, node: str, text: str) -> None:
        self.said.append(("happened", what, node))

    def note(self, node: str, text: str) -> None:
        pass

    def last(self) -> list[str]:
        return [word for word, what, _ in self.said if what == "drain"]


class Place:
    """A fleet of two nodes, its Slurm under trouble of one kind."""

    def __init__(self, kind: str = "", chance: float = 1.0) -> None:
        self.fleet = Fleet(FleetSettings((NodeSpec("n1"), NodeSpec("n2"))), 1)
        self.fleet.machines.start()
        self.troubles = Troubles(1)
        self.troubles.stop()
        if kind:
            self.troubles.on[kind] = chance
        self.listener = Listener()
        self.slurm = TroubledSlurm(self.fleet.slurm, self.fleet.timeline, self.troubles, self.listener)

    def pass_time(self, seconds: float) -> None:
        self.fleet.timeline.run_until(self.fleet.timeline.now + seconds)

    def drained(self, node: str = "n1") -> bool:
        return "DRAIN" in self.fleet.ctld.view(node).state


def test_without_trouble_everything_works() -> None:
    place = Place()
    place.slurm.drain("n1", OURS)
    assert place.drained()
    assert place.listener.last() == ["sends", "happened"]
    assert place.slurm.node("n1").reason == OURS
    place.slurm.create_fence("slc-x", "n1")
    assert place.slurm.reservations()["slc-x"].nodes == ("n1",)
    place.slurm.remove_fence("slc-x")
    place.slurm.undrain("n1")
    assert not place.drained()


def test_lost_request_does_nothing_and_says_so() -> None:
    place = Place("lost request")
    with pytest.raises(TransientError):
        place.slurm.drain("n1", OURS)
    assert not place.drained()
    assert place.listener.last() == ["sends"]


def test_lost_reply_has_its_effect() -> None:
    place = Place("lost reply")
    with pytest.raises(AmbiguousOutcome):
        place.slurm.drain("n1", OURS)
    assert place.drained()
    assert place.listener.last() == ["sends", "happened"]


def test_late_effect_comes_after_the_caller_gave_up() -> None:
    place = Place("late effect")
    with pytest.raises(AmbiguousOutcome):
        place.slurm.drain("n1", OURS)
    assert not place.drained()
    place.pass_time(61.0)
    assert place.drained()
    assert place.listener.last() == ["sends", "happened"]


def test_late_request_that_slurm_refuses_then_is_no_effect() -> None:
    place = Place("late effect")
    with pytest.raises(AmbiguousOutcome):
        place.slurm.undrain("nosuch")
    place.pass_time(61.0)
    assert [word for word, _, _ in place.listener.said] == ["sends"]
    place.troubles.stop()
    with pytest.raises(PermanentError):
        place.slurm.undrain("nosuch")


@pytest.mark.parametrize(
    ("kind", "read"),
    [("old nodes", lambda slurm: slurm.nodes()["n1"].state), ("old jobs", lambda slurm: slurm.jobs())],
)
def test_old_reads_show_what_the_last_one_showed(kind: str, read: Callable[[TroubledSlurm], object]) -> None:
    place = Place(kind)
    place.slurm.nodes()
    before = read(place.slurm)
    place.fleet.ctld.update_node("n1", "DRAIN", "fan noise")
    place.slurm.nodes()
    assert read(place.slurm) == before
    assert place.slurm.old_read
    # A look at one node is never old.
    assert "DRAIN" in place.slurm.node("n1").state
    place.troubles.stop()
    assert "DRAIN" in place.slurm.nodes()["n1"].state
    assert not place.slurm.old_read


def test_old_reservations_are_for_the_whole_look_alone() -> None:
    place = Place("old reservations")
    place.slurm.nodes()
    place.slurm.reservations()
    place.slurm.create_fence("slc-x", "n1")
    place.slurm.nodes()
    assert not place.slurm.reservations()
    assert place.slurm.old_read
    assert "slc-x" in place.slurm.reservations()


def test_slurmctld_that_is_away_neither_tells_nor_does() -> None:
    place = Place()
    place.slurm.away = True
    for call in (
        place.slurm.nodes,
        place.slurm.jobs,
        lambda: place.slurm.node("n1"),
        lambda: place.slurm.jobs_on("n1"),
        lambda: place.slurm.drain("n1", OURS),
    ):
        with pytest.raises(TransientError):
            call()
    assert not place.drained()


def test_odd_moved_and_unreadable_nodes_are_shown_so_everywhere() -> None:
    place = Place()
    place.slurm.odd["n1"] = "POWERED_DOWN"
    place.slurm.moved["n1"] = ("other",)
    place.slurm.unreadable.add("n2")
    for view in (place.slurm.nodes()["n1"], place.slurm.node("n1")):
        assert "POWERED_DOWN" in view.state
        assert view.partitions == ("other",)
    for view in (place.slurm.nodes()["n2"], place.slurm.node("n2")):
        assert view.state == {UNREADABLE}
        assert view.comment == ""


def test_slow_reads_let_time_pass_and_others_act_in_between() -> None:
    place = Place("slow read")
    before = place.fleet.timeline.now
    place.slurm.nodes()
    assert place.fleet.timeline.now > before
    place.troubles.on["between"] = 1.0
    acts: list[str] = []
    place.slurm.between = lambda: acts.append("x")
    place.slurm.node("n1")
    assert acts
    acts.clear()
    # Never between the last look and the write.
    place.slurm.jobs_on("n1")
    place.slurm.drain("n1", OURS)
    assert not acts


def test_daemon_dies_before_or_after_the_effect() -> None:
    place = Place("kill")
    with pytest.raises(Killed):
        place.slurm.reboot("n1")
    assert place.troubles.kills == 1
    seen = set()
    for _ in range(40):
        place = Place("kill at an effect", 0.5)
        place.troubles._dice["kill at an effect"].seed(_)
        place.slurm.drain("n1", OURS)
        try:
            place.slurm.reboot("n1")
        except Killed:
            seen.add("REBOOT_REQUESTED" in place.fleet.ctld.view("n1").state)
    assert seen == {True, False}


def test_seeds_draw_their_strengths_and_stop_ends_all() -> None:
    drawn = {tuple(Troubles(seed).on.items()) for seed in range(20)}
    assert len(drawn) > 15
    assert Troubles(7).on == Troubles(7).on
    troubles = Troubles(7)
    troubles.stop()
    assert not any(troubles.strikes(kind) for kind in STRENGTHS for _ in range(20))


# ---------------------------------------------------------------- the site, the store, the clock


class Provisioner:
    """Accepts everything."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def start(self, node: str, image: str, op_id: str) -> None:
        self.started.append(op_id)

    def poll(self, op_id: str, node: str) -> ProvisionStatus:
        return ProvisionStatus(ProvisionState.DONE)

    def abort(self, op_id: str, node: str) -> None:
        self.started.remove(op_id)


@pytest.mark.parametrize(
    ("kind", "error", "at_once", "later"),
    [
        ("lost request", TransientError, 0, 0),
        ("lost reply", AmbiguousOutcome, 1, 1),
        ("late effect", AmbiguousOutcome, 0, 1),
    ],
)
def test_reimages_get_lost_like_everything(
    kind: str, error: type[Exception], at_once: int, later: int
) -> None:
    place, inner = Place(kind), Provisioner()
    provisioner = TroubledProvisioner(inner, place.fleet.timeline, place.troubles, place.listener)
    with pytest.raises(error):
        provisioner.start("n1", "image", "op")
    assert len(inner.started) == at_once
    place.pass_time(61.0)
    assert len(inner.started) == later


def test_provisioner_that_cannot_be_asked_says_unknown() -> None:
    place = Place("poll fails")
    provisioner = TroubledProvisioner(Provisioner(), place.fleet.timeline, place.troubles, place.listener)
    assert provisioner.poll("op", "n1").state is ProvisionState.UNKNOWN
    place.troubles.stop()
    assert provisioner.poll("op", "n1").state is ProvisionState.DONE


def ticket(op_id: str) -> TicketFacts:
    return TicketFacts(op_id, "n1", "XID79", "gpu3", "text", 0.0, 1.0, (), None, "")


def test_failed_tickets_may_have_been_made_and_nobody_may_be_told() -> None:
    place, inner = Place("ticket fails"), Desk()
    desk = TroubledDesk(inner, inner, inner, place.troubles, place.listener)
    for number in range(20):
        with pytest.raises(TransientError):
            desk.write(ticket(f"op{number}"))
    assert 0 < len(inner.tickets) < 20
    desk.nobody_is_told = True
    desk.notify(Notice("key", "page", "n1", "text"))
    assert not inner.pages
    desk.nobody_is_told = False
    desk.notify(Notice("key", "page", "n1", "text"))
    assert list(inner.pages) == ["key"]


class Store:
    """Counts what reaches it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def identity(self) -> Identity:
        return Identity("i", "h", 1)

    def load(self, now: float) -> Records:
        self.calls.append("load")
        return Records()

    def apply(self, plan: Plan, now: float) -> None:
        self.calls.append("apply")

    def mark_sent(self, op_id: str) -> None:
        self.calls.append("mark_sent")

    def resolve(self, op_id: str, outcome: AttemptOutcome, detail: str, now: float) -> None:
        self.calls.append("resolve")

    def end_step(self, op_id: str, n: int, outcome: StepOutcome, detail: str, now: float) -> None:
        self.calls.append("end_step")

    def add_request(self, *args: object) -> int:
        return 1

    def pending_requests(self) -> tuple[Request, ...]:
        return ()


def every_write(store: TroubledStore) -> list[Callable[[], object]]:
    return [
        lambda: store.load(0.0),
        lambda: store.apply(Plan(), 0.0),
        lambda: store.mark_sent("op"),
        lambda: store.resolve("op", AttemptOutcome.FAILED, "", 0.0),
        lambda: store.end_step("op", 1, StepOutcome.REFUSED, "", 0.0),
    ]


def test_store_that_fails_wrote_nothing() -> None:
    place, inner, wrote = Place("store fails"), Store(), []
    store = TroubledStore(inner, place.troubles, lambda: wrote.append(1))
    for call in every_write(store):
        with pytest.raises(StoreError):
            call()
    assert not inner.calls
    place.troubles.stop()
    for call in every_write(store):
        call()
    assert inner.calls == ["load", "apply", "mark_sent", "resolve", "end_step"]
    assert len(wrote) == 4


def test_clock_that_steps_is_not_believed_and_put_right_at_a_restart() -> None:
    place = Place()
    wall = WallClock(place.fleet.timeline)
    clock = wall.daemon_clock()
    assert clock.now() == place.fleet.timeline.now
    wall.off_s = 3.0
    assert clock.now() == place.fleet.timeline.now + 3.0
    wall.off_s = 86400.0
    place.pass_time(10.0)
    assert clock.now() == place.fleet.timeline.now + 3.0
    assert wall.daemon_clock().now() == place.fleet.timeline.now


def test_what_is_older_than_a_minute_is_not_shown_again() -> None:
    place = Place("old nodes")
    place.slurm.nodes()
    place.fleet.ctld.update_node("n1", "DRAIN", "fan noise")
    place.pass_time(61.0)
    assert "DRAIN" in place.slurm.nodes()["n1"].state
    assert not place.slurm.old_read
