"""Exports: files that a spreadsheet, a script or a browser reads."""
