"""Trains image classifiers on one device or many; `python -m trainer.task` starts it."""
