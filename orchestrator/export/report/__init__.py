"""The report page of a sweep: one HTML file with inline SVG."""
