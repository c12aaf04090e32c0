"""What runs inside the central services, and whether they answer."""
