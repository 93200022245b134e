"""Measurements on the GPU itself through torch."""
