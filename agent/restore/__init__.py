"""Everything that changes a phone goes through here, so that it can be undone in every case."""
