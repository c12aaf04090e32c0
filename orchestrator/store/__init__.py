"""The shared store: the backlog, the reports and everything that is asked of them."""
