"""Getting runs to phones and reports back: the queue, the broker, the scheduler, ingest."""
