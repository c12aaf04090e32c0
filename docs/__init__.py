"""The documentation, and the program that writes its generated tables."""
