"""The study engine: suggests trials, reads their metrics, stops them, and keeps them running side by side.

Nothing here starts a process or a server: `run.StudyRun` is given an executor. Optuna is imported by `sampling` alone, at the
first suggestion.
"""
