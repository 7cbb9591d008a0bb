"""Holds the local Vertex against what the real service was seen to do: rows of `fidelity/`, tried and scored.

A manifest has rows (what holds, and where that is known from), scripts (requests that many rows look at) and decisions
(what we do about each difference). The same rows can be tried on the real service.
"""
