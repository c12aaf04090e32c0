"""A phone whose commands really run on this host, in a private directory and without physics."""
