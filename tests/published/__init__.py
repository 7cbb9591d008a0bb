"""The published code of the five walk-throughs, run by `vertexrig local run` from checkouts that the user names."""
