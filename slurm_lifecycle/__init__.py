"""slurm-lifecycle keeps Slurm GPU clusters healthy by itself."""

__version__ = "0.1.0"
