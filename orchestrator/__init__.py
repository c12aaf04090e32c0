"""The central services of a lab (scheduler, ingest, store) and the `farm` command line."""
