"""From a request to exactly one job on Vertex AI, and what the job and its study report afterwards.

In: a project, a name, overrides and a request id. Out: a created job, its claim and budget entry; trials and reports.
"""
