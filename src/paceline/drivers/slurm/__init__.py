"""The Slurm driver: its scripts as text, and what the scheduler says about tasks."""
