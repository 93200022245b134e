"""Programs that run inside pods and steps: standard library only, Python 3.9."""
