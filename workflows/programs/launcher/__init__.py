"""The program in each training pod: starts ranks, reads them, restarts them in place."""
