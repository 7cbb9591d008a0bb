"""Runs: one request for a job or sweep, from the first delivery to its last step.

In: a request, its candidates and what its schedule says. Out: its jobs, one at a time, its steps, and one end in the history.
"""
