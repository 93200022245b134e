"""The commands of `primus`, a module for each group."""
