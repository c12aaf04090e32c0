"""What runs beside the phones."""
