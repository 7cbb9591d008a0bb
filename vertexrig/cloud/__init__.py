"""The only modules that talk to Google: Vertex AI, Cloud Storage, Scheduler and Logging, Artifact Registry.

In: plain requests. Out: plain answers, or a `ServiceError` with the HTTP status.
"""
