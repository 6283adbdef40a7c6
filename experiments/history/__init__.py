"""The history of nights: one row a round, what changed since, and the page that says so."""
