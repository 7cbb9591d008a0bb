"""A trainer's folder as a package: `sources` says what goes into it and what it is called, `builder` makes and proves it,
`source` reads what the trainer says of itself. In goes a path; out come a name, an archive, or a `TrainerSource`."""
