"""Turn the observation of a run into metrics and a verdict."""
