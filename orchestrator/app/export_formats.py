"""The formats and the tables of exports, by name."""

from orchestrator.export.formats import TABLE_FORMATS

FORMATS = (*TABLE_FORMATS, "results", "trace", "bundle")
TABLES = ("figures", "ranking", "samples", "readings", "ops", "outcomes")
