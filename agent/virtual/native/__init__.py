"""A phone whose commands really run on this host, in a private directory, with its sensors."""
