"""What Slurm prints when it says no: texts that every back end takes for the same answer."""

# slurmctld says that it cannot do this now and has done nothing.
REFUSED_NOW = (
    "Requested reservation is in use",
    "Requested nodes are busy",
    "temporarily unable",
    "Resource temporarily unavailable",
    "Job is in transitional state",
)
# slurmctld, or the command before it sent anything, says no.
REFUSED = (
    "Invalid user id",
    "Access/permission denied",
    "Invalid node name",
    "Invalid node state",
    "Invalid job id",
    "Requested reservation is invalid",
    "Duplicate reservation name",
    "Reservation name is duplicated",
    "You must specify a reason",
    "Job is pending execution",
    "Requested operation is presently disabled",
    "Only batch jobs are accepted",
    "Unknown keyword",
    "too many arguments",
    "too few arguments",
)
