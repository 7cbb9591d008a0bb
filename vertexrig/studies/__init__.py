"""What a job and its study say afterwards.

In: a job as the API describes it, or a rehearsal's record. Out: its trials, the best of them, reports.
"""
