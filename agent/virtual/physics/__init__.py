"""What the silicon does: clocks, work, power, heat, throttling, charge."""
