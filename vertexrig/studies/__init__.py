"""What a job and its study say afterwards, and what follows from them: the next sweep, the promoted job, the model's registration.

In: a job as the API describes it, or a rehearsal's record. Out: its trials and reports, text of the project file, a model version.
"""
