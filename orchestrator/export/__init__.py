"""What leaves the farm: files that a spreadsheet, a script or a browser reads."""
