"""The `farm` commands, one file per group: read the arguments, call one operation, print."""
