"""The studies that this farm grew out of: their sweeps, their claims, and what is seen here."""
