"""Tests that others wrote, run as they are against the local Vertex; `python -m tools.upstream --help`."""
