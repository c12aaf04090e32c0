"""Dispatch: the job queue, the central side of the broker, the scheduler and the ingest service."""
