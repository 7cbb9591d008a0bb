"""The verbs that run jobs on this machine: `local …` and `rehearse`, which entry points add to the command line."""
