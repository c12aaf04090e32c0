"""The physical model of a phone: clocks, step times, power, heat, throttling, memory, battery."""
