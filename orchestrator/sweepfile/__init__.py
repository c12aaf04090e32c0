"""The sweep-file language: YAML read into a Sweep, every mistake with its line and column."""
