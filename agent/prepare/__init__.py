"""Bring a phone into the requested condition: charged, quiet, cool, cores and clocks pinned."""
