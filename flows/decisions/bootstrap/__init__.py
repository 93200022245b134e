"""Decisions of a bootstrap: which hosts are fit, what is done next, what has drifted."""
