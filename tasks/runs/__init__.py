"""Acts on one run: opens, submits, watches, examines, clears attempts."""
