"""The runner's contract (runner.h), and the placeholder of ABIs that have no build yet."""
