"""From a sweep to runs: trials on phones, their order, estimated times and warnings. Pure."""
