"""Tests and draining of nodes through Slurm."""
