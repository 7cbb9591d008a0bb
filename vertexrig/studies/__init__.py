"""The results of a finished job or sweep, and what is made of them: the next sweep, the promoted job, the registered model.

In: a job as the API describes it, or a rehearsal's record. Out: its trials and reports, text of the project file, a model version.
"""
