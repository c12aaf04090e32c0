"""Everything that can be asked of a lab: one operation, one function."""
