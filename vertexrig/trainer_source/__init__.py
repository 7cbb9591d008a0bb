"""A trainer's source, read without importing it: `reader.read` takes a path and a module and returns a `TrainerSource`.

`modules` and `trainer_model` are at the bottom, the readers of the flag libraries above them, `reader` on top;
`vertexrig.package.cache` keeps what it read.
"""
