"""Jobs, reservations, configuration and hostlists."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_lifecycle.core.model import JobView
from slurm_lifecycle.errors import TransientError
from slurm_lifecycle.slurm.hostlist import MAX_NAMES, expand
from slurm_lifecycle.slurm.parse import TERMINAL_STATES, parse_config, parse_jobs, parse_reservations

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"
HEADING = "JOBID|STATE|UID|RESTART_COUNT|NODELIST|REASON|;\n"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


# ---------------------------------------------------------------- jobs


def test_recorded_jobs() -> None:
    text = golden("22.05/jobs.txt")
    assert "|COMPLETED|" in text
    jobs = {job.job_id: job for job in parse_jobs(text)}
    states = sorted(job.state for job in jobs.values())
    assert "SUSPENDED" in states
    assert states.count("RUNNING") == 1
    assert "COMPLETED" not in states
    suspended = next(job for job in jobs.values() if job.state == "SUSPENDED")
    assert (suspended.nodes, suspended.uid, suspended.reason) == (("n2",), 0, "")
    assert any(job_id.endswith("_[2-4%1]") for job_id in jobs)
    assert any(job_id.endswith("+1") for job_id in jobs)
    assert any(job.reason == "JobHeldUser" and job.nodes == () for job in jobs.values())


def test_an_empty_queue_is_told_from_no_answer() -> None:
    assert parse_jobs(golden("22.05/jobs_none.txt")) == ()
    assert parse_jobs(HEADING) == ()
    with pytest.raises(TransientError):
        parse_jobs("")


@pytest.mark.parametrize(
    "state",
    ["STAGE_OUT", "STOPPED", "COMPLETING", "CONFIGURING", "SUSPENDED", "SIGNALING", "RESIZING", "NEW_WORD"],
)
def test_every_state_that_is_not_the_end_counts(state: str) -> None:
    text = HEADING + f"12_3|{state}|1000|2|gpu-[001-002,7]|None|;\n"
    expected = JobView("12_3", state, ("gpu-001", "gpu-002", "gpu-7"), 1000, 2, "")
    assert parse_jobs(text) == (expected,)


@pytest.mark.parametrize("state", sorted(TERMINAL_STATES))
def test_what_is_over_is_left_out(state: str) -> None:
    assert parse_jobs(HEADING + f"12|{state}|1000|2|n1|None|;\n") == ()


def test_a_reason_may_hold_the_separator_and_line_breaks() -> None:
    text = HEADING + "12|PENDING|1|0||burst_buffer: a|b\n13|RUNNING|1|0|n1|x|;\n14|RUNNING|1|0|n1|None|;\n"
    jobs = parse_jobs(text)
    assert [job.job_id for job in jobs] == ["12", "14"]
    assert jobs[0].reason == "burst_buffer: a|b\n13|RUNNING|1|0|n1|x"


def test_a_long_list_of_array_tasks_is_shortened() -> None:
    assert parse_jobs(HEADING + "12_[1,3,5,...]|PENDING|1|0||None|;\n")[0].job_id == "12_[1,3,5,...]"


@pytest.mark.parametrize(
    "record",
    [
        "x|RUNNING|1|0|n1|None|;\n",
        "1|running|1|0|n1|None|;\n",
        "1|RUNNING|root|0|n1|None|;\n",
        "1|RUNNING|1||n1|None|;\n",
        "1|RUNNING|1|0|n[1-|None|;\n",
        "1|RUNNING|1|0|n[1-99999999]|None|;\n",
        "1|RUNNING|1|0|n1;\n",
        "1|RUNNING|1|0|n1|None",
        "1|RUNNING|1|0|n1|None|;",
    ],
)
def test_a_job_that_cannot_be_read_is_never_left_out(record: str) -> None:
    with pytest.raises(TransientError):
        parse_jobs(HEADING + record)


@given(st.text(max_size=80))
def test_jobs_raise_nothing_but_transient_error(text: str) -> None:
    for whole in (text, HEADING + text, HEADING + text + "|;\n"):
        try:
            parse_jobs(whole)
        except TransientError:
            continue


# ---------------------------------------------------------------- reservations


def test_recorded_reservations() -> None:
    found = parse_reservations(golden("22.05/reservations.txt"))
    assert set(found) == {"slc-n1.1", "ops day StartTime=x", "counted"}
    fence = found["slc-n1.1"]
    assert fence.nodes == ("n1",)
    assert fence.flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES"}
    assert fence.users == ("root",)
    assert fence.end_s - fence.start_s == 365 * 86_400
    assert found["ops day StartTime=x"].nodes == ("n1", "n2")
    assert found["ops day StartTime=x"].users == ("root", "nobody")
    assert found["counted"].flags == frozenset()
    assert parse_reservations(golden("22.05/reservations_none.txt")) == {}


def test_reservations_of_24_11() -> None:
    found = parse_reservations(golden("24.11/reservations.txt"))
    fence = found["slc-gpu-001.1790000000"]
    assert fence.nodes == ("gpu-001", "gpu-002", "gpu-003", "gpu-010")
    assert fence.users == ("root", "slurm")
    assert (found["licences"].nodes, found["licences"].users) == ((), ())


def test_reservations_that_cannot_be_trusted() -> None:
    text = golden("22.05/reservations.txt")
    forged = text.replace("ReservationName=counted ", "ReservationName=slc-n1.1 ")
    for bad in (forged, text[:-1], text.replace("EndTime=2027", "EndTime=x"), "", "garbage"):
        with pytest.raises(TransientError):
            parse_reservations(bad)
    with pytest.raises(TransientError, match="rename it"):
        parse_reservations(text.replace("ReservationName=counted ", "ReservationName=a\nb "))


@given(st.text(max_size=80))
def test_reservations_raise_nothing_but_transient_error(text: str) -> None:
    for whole in (text, f"ReservationName={text}\n\n"):
        try:
            parse_reservations(whole)
        except TransientError:
            continue


# ---------------------------------------------------------------- configuration, hostlists


def test_recorded_configuration() -> None:
    config = parse_config(golden("22.05/config.txt"))
    assert config["ResumeTimeout"] == "60 sec"
    assert config["RebootProgram"] == "/bin/true"
    assert config["SlurmctldHost[0]"] == "ctl(127.0.0.1)"
    assert config["Epilog"] == ""
    assert config["ReturnToService"] == "1"
    with pytest.raises(TransientError):
        parse_config("")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[08-11,020]", ("n08", "n09", "n10", "n11", "n020")),
        ("gpu-a.b_1", ("gpu-a.b_1",)),
    ],
)
def test_hostlists(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


def test_hostlists_of_several_parts() -> None:
    assert set(expand("a1,b[1-2]")) == {"a1", "b1", "b2"}
    assert set(expand("r[1-2]n[1-2]")) == {"r1n1", "r1n2", "r2n1", "r2n2"}
    assert set(expand("n[1-2]-int")) == {"n1-int", "n2-int"}


@pytest.mark.parametrize(
    "text",
    [
        "n[1-70000]",
        "n[1-999999999]",
        "r[1-999]n[1-999]",
        "n[3-1]",
        "n[",
        "n[a]",
        "@all",
        "a!b",
        "a b",
        "n[1-]",
    ],
)
def test_what_is_no_hostlist_or_too_long(text: str) -> None:
    with pytest.raises(ValueError, match="hostlist"):
        expand(text)


@given(st.text("n1[]-,.@&!x ", max_size=30))
def test_hostlists_raise_nothing_but_value_error(text: str) -> None:
    try:
        names = expand(text)
    except ValueError:
        return
    assert len(names) <= MAX_NAMES
