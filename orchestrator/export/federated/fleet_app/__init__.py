"""A Flower app whose nodes are the clients of a measured fleet."""
