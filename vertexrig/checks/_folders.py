"""How an output folder is written, for the fixes of several rules."""

OUTPUT = "baseOutputDirectory: {outputUriPrefix: gs://BUCKET/PATH}"
"""As the API has it."""
OUTPUT_KEYS = "bucket: gs://BUCKET at the top of the file, or base_output_directory: gs://BUCKET/PATH"
"""As the project file has it."""
