"""A corpus of phones: one facts file per phone, with what a probe has to make of it."""
