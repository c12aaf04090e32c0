"""Which phones should train: what a round costs them, who is chosen, and what comes of it."""
