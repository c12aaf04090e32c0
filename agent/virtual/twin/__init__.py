"""The twin: what a virtual phone would say, and how far that is from what was measured."""
