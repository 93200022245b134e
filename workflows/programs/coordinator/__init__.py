"""The program that sees a whole gang: members, progress, hangs, restarts, saves."""
