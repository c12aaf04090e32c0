"""Bring a run's files to the phone, start the runner or an external program, and follow it."""
