"""A phone that is not there: it speaks the device side of ADB and obeys physics.  Imports nothing of agent."""
