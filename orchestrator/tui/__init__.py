"""The terminal view of a lab: `farm watch`."""
