"""The twin: what a virtual phone would measure, and how far that is from measurements."""
