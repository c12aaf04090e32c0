"""Statistics over measured runs: rankings, comparisons, trends and findings. Pure."""
