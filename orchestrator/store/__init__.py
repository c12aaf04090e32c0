"""The store: tables, transactions, and the queries on sweeps, runs, reports and phones."""
