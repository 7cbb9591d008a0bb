"""The trigger: the application the Cloud Function serves, the folder it is staged in, its deployment and its schedules.

`app` answers requests with what `vertexrig.submit.submission` does; nothing below this room knows of it.
"""
