"""A module whose import takes as long as `PRIMUS_DEMO_IMPORT_SECONDS` says, as those of real trainers do.

A profile may name it among the modules that a warm process imports beforehand.
"""

import os
import time

time.sleep(float(os.environ.get("PRIMUS_DEMO_IMPORT_SECONDS", "0")))
