"""Carrying out and proving the steps of a bootstrap on hosts and clusters."""
