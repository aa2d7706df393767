"""Hot standby: a job finds its full number at its next start, and the nodes come back into reserve."""

from slurm_lifecycle.simulation.lab.standby import Standby
from slurm_lifecycle.simulation.slurmctld import JobSpec, NodeSpec, SlurmConf, Slurmctld
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline

RESERVATION = "hot-standby-batch"


class Stage:
    """Ten nodes, two of them beside the fleet."""

    def __init__(self, release: str = "24.11") -> None:
        self.timeline = Timeline()
        self.began = self.timeline.now
        specs = [NodeSpec(f"n{number:02}") for number in range(1, 11)]
        self.ctld = Slurmctld(self.timeline, specs, SlurmConf(release), stream(1, "c", "t"))
        for spec in specs:
            self.ctld.registered(spec.name, self.began - 500.0, 8)
        self.standby = Standby(self.timeline, self.ctld, "batch", [one.name for one in specs], 2)

    def to(self, seconds: float) -> None:
        self.timeline.run_until(self.began + seconds)

    def reserved(self) -> set[str]:
        view = self.ctld.reservations().get(RESERVATION)
        return set() if view is None else set(view.nodes)

    def submit(self, nodes_max: int = 8) -> str:
        return self.ctld.submit(JobSpec("train", nodes_min=4, nodes_max=nodes_max, time_limit_s=1e7))


def test_no_job_gets_the_standby() -> None:
    stage = Stage()
    job = stage.submit(nodes_max=10)
    stage.to(100)
    assert len(stage.ctld.jobs()[job].nodes) == 8
    assert stage.reserved() == {"n09", "n10"} == stage.standby.reserved
    stage.to(3600)
    assert stage.standby.idle_node_s() == 2 * 3600


def test_one_takes_the_place_of_a_node_that_is_out_and_another_comes_back() -> None:
    stage = Stage()
    job = stage.submit()
    stage.to(100)
    stage.ctld.update_node("n03", "DRAIN", "broken")
    stage.to(110)
    assert stage.reserved() == {"n10"}
    assert stage.standby.given == 1
    stage.ctld.requeue(job)
    stage.to(400)
    assert stage.ctld.jobs()[job].nodes == ("n01", "n02", "n04", "n05", "n06", "n07", "n08", "n09")
    stage.ctld.update_node("n03", "UNDRAIN")
    stage.to(500)
    # The node that came back is idle, and takes the place of the one that was given.
    assert stage.reserved() == {"n03", "n10"}
    assert "n03" not in stage.ctld.jobs()[job].nodes


def test_more_out_than_there_is_standby_and_all_of_it_comes_back() -> None:
    stage = Stage()
    stage.to(10)
    for name in ("n01", "n02", "n03"):
        stage.ctld.update_node(name, "DRAIN", "broken")
    stage.to(20)
    assert stage.reserved() == set()
    for name in ("n01", "n02", "n03"):
        stage.ctld.update_node(name, "UNDRAIN")
    stage.to(60)
    assert len(stage.reserved()) == 2
    assert stage.standby.idle_node_s() < 2 * 60


def test_a_broken_standby_is_no_standby() -> None:
    stage = Stage()
    stage.to(10)
    stage.ctld.update_node("n10", "DRAIN", "broken")
    stage.to(20)
    assert stage.reserved() == {"n09"}
    stage.ctld.update_node("n10", "UNDRAIN")
    stage.to(40)
    assert len(stage.reserved()) == 2


def test_a_node_with_a_job_is_not_taken_into_reserve_before_the_job_ends() -> None:
    stage = Stage()
    stage.to(10)
    for name in ("n09", "n10"):
        stage.ctld.update_node(name, "DRAIN", "broken")
    job = stage.submit()
    stage.to(100)
    assert len(stage.ctld.jobs()[job].nodes) == 8
    for name in ("n09", "n10"):
        stage.ctld.update_node(name, "UNDRAIN")
    stage.to(200)
    assert stage.reserved() == {"n09", "n10"}
    assert len(stage.ctld.jobs()[job].nodes) == 8
