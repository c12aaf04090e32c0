"""A phone that is not there: it speaks the device side of ADB and obeys physics.

Imports nothing of agent: a fake that shares code with what it fakes proves only itself.
"""
