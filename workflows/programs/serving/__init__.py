"""Puts components there, asks whether they serve, and takes them away again."""
