"""Getting runs to phones: the queue, the broker, the retry rule, the scheduler."""
