"""The verbs `local …`, `rehearse` and `console`, which entry points add to the command line."""
