"""What is wrong with a manifest before anybody is asked to run it."""
