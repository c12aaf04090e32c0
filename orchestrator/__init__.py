"""What runs in the middle."""
