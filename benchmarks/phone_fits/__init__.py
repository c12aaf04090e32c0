"""Fits the project's own phones to published measurements; `farm virtual calibrate` fits yours."""
