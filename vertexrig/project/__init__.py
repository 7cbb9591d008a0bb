"""The project file: vertexrig.yaml, its environments, overrides and variables, read as a typed `Project`.

`vertexrig.render.resolve` fills in its jobs and sweeps; `vertexrig.workspace` is what other rooms use.
"""
