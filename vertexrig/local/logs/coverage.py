"""What of Cloud Logging v2 is served, as data for the coverage page."""

from __future__ import annotations

from vertexrig.local.http import Coverage

COVERAGE: tuple[Coverage, ...] = (
    Coverage(
        "logging.entries.list",
        "approximated",
        "All projects are one; filters with comparisons, ':', AND, OR, NOT and parentheses; no regular expressions "
        "and no functions.",
    ),
    Coverage("logging.entries.write", "served", "No deduplication by insertId."),
    Coverage("logging.logs.list", "approximated", "All projects are one."),
    Coverage("logging.entries.tail", "served", "Over gRPC, as in the clients; in order of arrival, without a window."),
    Coverage("logging.entries.copy", "not served"),
    Coverage("logging.logs.delete", "not served"),
    Coverage("logging: sinks, buckets, views, metrics", "not served"),
    Coverage("logging: names of a job's logs and labels", "approximated", "logName is projects/P/logs/TASK."),
)
