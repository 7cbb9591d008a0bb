"""Render, check, rehearse and launch training jobs on Vertex AI."""

__version__ = "0.1.0"
