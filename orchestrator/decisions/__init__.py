"""Rules that apply while a sweep runs: retry, stopping, poison, phone health, budgets. Pure."""
