"""Access to Slurm: back ends of the `Slurm` port, and what they parse."""
