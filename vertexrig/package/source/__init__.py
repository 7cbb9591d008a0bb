"""A trainer's source, read without importing it: `reader.read` takes a path and a module and returns a `model.TrainerSource`.

`names` and `model` are at the bottom, the readers of the flag libraries beside each other above them, `reader` on top.
"""
