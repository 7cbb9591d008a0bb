"""The cluster that a job makes, before it is paid for.

In: a job spec and the catalog. Out: replicas, roles, TF_CONFIG, quota, price, and their picture for a terminal.
"""
