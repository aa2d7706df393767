"""A site description and the `[simulate]` table of a policy as pydantic tables."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from slurm_lifecycle.service.config_schema import Duration, PolicyFileTables, Table, Text, Word

# Above this a run would take hours and its figures would be no better.
MAX_NODES = 20_000
Rate = Annotated[float, Field(ge=0, le=10_000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$")]
Share = Annotated[float, Field(gt=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=50)]
Nodes = Annotated[int, Field(ge=1, le=MAX_NODES)]


class SlurmTable(Table):
    release: str = Field(default="24.11", examples=["24.11"])
    resume_timeout: Duration = Field(default=3600.0, examples=["1h"])
    slurmd_timeout: Duration = Field(default=300.0, examples=["5min"])
    return_to_service: int = Field(default=1, ge=0, le=2, examples=[1])
    requeue_delay: Duration = Field(default=120.0, examples=["2min"])
    # As the daemon's own configuration has it.
    interval: Duration = Field(default=10.0, ge=0.2, le=600, examples=["10s"])


class FailuresTable(Table):
    per_1000_node_days: Rate | None = Field(default=None, examples=[3.8])
    scale: Rate = Field(default=1.0, examples=[1.0])
    causes: dict[str, Rate] = Field(default={}, examples=[{"gpu_off_bus": 0.4}])
    lemon_percent: Percent = Field(default=1.2, examples=[1.2])
    lemon_factor: float = Field(default=10.0, ge=1, le=1000, examples=[10.0])
    false_alarms_per_1000_node_days: Rate = Field(default=0.1, examples=[0.1])


class RepairTable(Table):
    boot: Duration = Field(default=600.0, examples=["10min"])
    reimage: Duration = Field(default=2400.0, examples=["40min"])
    rma_least: Duration = Field(default=5 * 86400.0, examples=["5d"])
    rma_most: Duration = Field(default=14 * 86400.0, examples=["14d"])


class PeopleTable(Table):
    response: Duration = Field(default=7200.0, examples=["2h"])
    work: Duration = Field(default=900.0, examples=["15min"])


class EventTable(Table):
    kind: Literal["driver_rollout", "power", "switch"] = Field(examples=["driver_rollout"])
    at: Duration = Field(examples=["3d"])
    share: Share = Field(default=0.2, examples=[0.2])
    within: Duration = Field(default=3600.0, examples=["1h"])
    domain: Text = Field(default="", examples=["rack003"])
    lasts: Duration = Field(default=3600.0, examples=["1h"])


class JobTable(Table):
    name: Name = Field(examples=["pretrain"])
    count: int | None = Field(default=None, ge=1, le=10_000, examples=[1])
    per_day: float | None = Field(default=None, gt=0, le=10_000, examples=[24.0])
    share: Share | None = Field(default=None, examples=[0.4])
    nodes: Nodes | None = Field(default=None, examples=[16])
    nodes_min: Nodes | None = Field(default=None, examples=[12])
    nodes_max: Nodes | None = Field(default=None, examples=[16])
    run_time: Duration | None = Field(default=None, examples=["12h"])
    checkpoint_every: Duration = Field(default=3600.0, examples=["1h"])
    restart: Duration = Field(default=600.0, examples=["10min"])
    resubmit_after: Duration = Field(default=60.0, examples=["1min"])
    requeue: bool = Field(default=True, examples=[True])
    time_limit: Duration | None = Field(default=None, examples=["2d"])
    priority: int = Field(default=0, ge=0, le=1_000_000, examples=[100])
    partition: Name | None = Field(default=None, examples=["batch"])

    @model_validator(mode="after")
    def _consistent(self) -> "JobTable":
        if [self.count, self.per_day, self.share].count(None) != 2:
            raise ValueError("give exactly one of count, per_day and share")
        if self.nodes is not None:
            if self.nodes_min is not None or self.nodes_max is not None:
                raise ValueError("give nodes, or nodes_min and nodes_max, not both")
        elif self.nodes_min is None or self.nodes_max is None:
            raise ValueError("nodes is missing, or nodes_min and nodes_max")
        elif self.nodes_min > self.nodes_max:
            raise ValueError(f"nodes_min = {self.nodes_min} is above nodes_max = {self.nodes_max}")
        if self.run_time is None and self.count is None:
            raise ValueError("run_time is missing; only jobs with a count may run as long as the simulation")
        return self


class SiteDescription(Table):
    summary: Text = Field(default="", examples=["512 nodes, mixed jobs"])
    days: float = Field(default=28.0, gt=0, le=400, examples=[28.0])
    nodes: int = Field(ge=1, le=MAX_NODES, examples=[512])
    gpus_per_node: int = Field(default=8, ge=1, le=72, examples=[8])
    nodes_per_domain: int = Field(default=16, ge=1, le=MAX_NODES, examples=[16])
    partitions: dict[Name, Share] = Field(default={"batch": 1.0}, examples=[{"batch": 1.0}])
    slurm: SlurmTable = Field(default=SlurmTable())
    failures: FailuresTable = Field(default=FailuresTable())
    repair: RepairTable = Field(default=RepairTable())
    people: PeopleTable = Field(default=PeopleTable())
    events: list[EventTable] = Field(default=[], max_length=1000)
    jobs: list[JobTable] = Field(default=[], max_length=100)


class SimulateTable(Table):
    summary: Text = Field(default="", examples=["the full ladder, reimages included"])
    mode: Literal["observe", "act"] = Field(default="act", examples=["act"])
    rungs: list[Word] | None = Field(default=None, examples=[["drain", "return", "reboot", "rma"]])
    reimage: bool = Field(default=True, examples=[True])
    operator: bool = Field(default=False, examples=[True])
    response: Duration | None = Field(default=None, examples=["2h"])
    standby_percent: Percent = Field(default=0.0, examples=[2.0])


class SimulatedPolicy(PolicyFileTables):
    simulate: SimulateTable = Field(default=SimulateTable())
