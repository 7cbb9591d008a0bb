"""Project and name to YAML text, through the one Jinja environment.

In: a loaded project and its templates. Out: YAML that gcloud takes, byte for byte the same for the same input.
"""
