"""Read what a run left behind: the runner's records, sensor readings, power and CPU usage."""
