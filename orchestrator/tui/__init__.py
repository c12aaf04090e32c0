"""The terminal: a lab at a glance."""
