"""The agent: one process per host; it drives the phones that are attached to this host."""
