"""The state of a lab as people see it, on a terminal or on the page of the lab."""
