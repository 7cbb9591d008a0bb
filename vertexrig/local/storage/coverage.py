"""What of the Cloud Storage JSON API is served, as data for the coverage page."""

from __future__ import annotations

from vertexrig.local.http import Coverage

COVERAGE: tuple[Coverage, ...] = (
    Coverage("storage.buckets.insert", "served"),
    Coverage("storage.buckets.get", "served"),
    Coverage("storage.buckets.list", "served", "One list for all projects."),
    Coverage(
        "storage.buckets.patch",
        "approximated",
        "Settings are kept and shown; lifecycle, retention and versioning do nothing.",
    ),
    Coverage("storage.buckets.update", "approximated", "As patch."),
    Coverage("storage.buckets.delete", "served"),
    Coverage("storage.buckets.getIamPolicy", "approximated", "What was set; access does not depend on it."),
    Coverage("storage.buckets.setIamPolicy", "approximated", "Kept and shown; access does not depend on it."),
    Coverage("storage.buckets.testIamPermissions", "approximated", "Every permission is held."),
    Coverage("storage.buckets.getStorageLayout", "served", "Always a flat namespace."),
    Coverage("storage.buckets.lockRetentionPolicy", "not served"),
    Coverage(
        "storage.objects.insert",
        "served",
        "Simple, multipart and resumable; MD5 and CRC32C are checked. A name that cannot be a path is kept apart.",
    ),
    Coverage(
        "storage.objects.get", "approximated", "Live generation only; gzip objects are sent as stored, never inflated."
    ),
    Coverage(
        "storage.objects.list",
        "approximated",
        "versions and matchGlob are ignored, fields cuts the outermost names alone; softDeleted is always empty.",
    ),
    Coverage("storage.objects.patch", "served"),
    Coverage("storage.objects.update", "served"),
    Coverage("storage.objects.delete", "served", "No soft delete."),
    Coverage("storage.objects.copy", "served"),
    Coverage("storage.objects.rewrite", "served", "Always done in one call."),
    Coverage("storage.objects.move", "served"),
    Coverage("storage.objects.compose", "served"),
    Coverage("storage.objects.restore", "not served"),
    Coverage("storage.objects.watchAll", "not served"),
    Coverage("storage.folders.list", "approximated", "Always empty."),
    Coverage("storage.managedFolders.list", "approximated", "Always empty."),
    Coverage("storage.notifications.list", "approximated", "Always empty."),
    Coverage("storage.bucketAccessControls.list", "approximated", "Always empty."),
    Coverage("storage.defaultObjectAccessControls.list", "approximated", "Always empty."),
    Coverage("storage.projects.serviceAccount.get", "approximated", "A fixed address."),
    Coverage("storage.projects.hmacKeys", "not served"),
    Coverage("storage batch", "served", "Metadata calls, up to 100, one after another."),
    Coverage("XML API: GET and HEAD of an object", "served", "By the real names, through the front."),
    Coverage("XML API: all else", "not served", "Also means no transfer_manager.upload_chunks_concurrently."),
    Coverage("gRPC API", "not served"),
)
