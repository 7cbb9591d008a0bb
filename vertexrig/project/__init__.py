"""The project file: vertexrig.yaml and overrides to typed values.

In: a file, `--set` pairs, environment variables. Out: a `Project`, and for each name the resolved view that templates see.
"""
