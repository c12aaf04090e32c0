"""The API of a lab over HTTP: one route per operation of app/, and nothing else."""
