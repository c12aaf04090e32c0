"""The C sources of the runner, its contract (runner.h), and a placeholder for other ABIs."""
