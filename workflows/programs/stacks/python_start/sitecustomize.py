"""What Python runs at its start in every rank: the process answers `stack_signal.SIGNAL` with its stacks from then on.

`PYTHONPATH` of a rank begins with this folder: nothing else reaches a program that nobody changed, and those that it
starts, before their first line. Then it gets out of the way: `sys.path` is as without it, and what the place itself
has of this name is run. Where anything fails here there are no stacks but the kernel's, and the rank runs all the
same. Any Python from 2.7 on understands this file.
"""

import os
import sys

if "PRIMUS_PARKED" not in os.environ:  # its forks answer, each with a file of its own
    try:
        import stack_signal  # type: ignore[import-not-found] # beside this file

        del sys.modules["stack_signal"]  # the program may have one
        stack_signal.install()
    except Exception:  # noqa: S110 - whatever it is, it must not become the program's
        pass

sys.path[:] = [_place for _place in sys.path if _place != os.path.dirname(__file__)]
_ours = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # type: ignore # noqa: F401 - the one that Python would have found without us
except ImportError as _error:
    sys.modules["sitecustomize"] = _ours
    if getattr(_error, "name", "sitecustomize") != "sitecustomize":
        raise
