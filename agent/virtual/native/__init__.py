"""A phone whose commands really run on this host, in a folder of its own; it has no physics."""
