"""From a request to exactly one job on Vertex AI.

In: a project, a name, overrides and a request id. Out: a created job, its claim and budget entry.
"""
