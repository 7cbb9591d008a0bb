"""The only modules that talk to Google: Vertex AI, Cloud Storage, Cloud Scheduler.

In: plain requests. Out: plain answers, or a `ServiceError` with the HTTP status.
"""
