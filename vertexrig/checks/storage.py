"""Cloud Storage URIs: outputs and packages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vertexrig.checks.model import (
    CODE_DOC,
    GCSFUSE,
    PACKAGE_DOC,
    PRACTICE,
    REST,
    WALKTHROUGH,
    Context,
    Problem,
    Rule,
    join,
)
from vertexrig.finding import Severity, write
from vertexrig.spec.document import Document, Pool, job_part
from vertexrig.text import quoted

OUTPUT = "baseOutputDirectory: {outputUriPrefix: gs://BUCKET/PATH}"
"""How an output folder is written in a fix, as the API has it."""
OUTPUT_KEYS = "bucket: gs://BUCKET at the top of the file, or base_output_directory: gs://BUCKET/PATH"
"""As the project file has it."""

_BUCKET_RULES = "Cloud Storage bucket names as in github.com/UnitVectorY-Labs/gcpvalidate v0.1.1 (2026-01-01)"
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9_.-]*[a-z0-9])?")
_IP = re.compile(r"[0-9]+(?:\.[0-9]+){3}")


def bucket_problem(name: str) -> str:
    """Return what is wrong with a bucket's name, "" if nothing is.

    3 to 63 lowercase letters, digits, `-`, `_` and `.` (222 with dots), a letter or digit at both ends, no two dots in
    a row, no IP address.
    """
    if not name:
        return "no bucket is named"
    if re.search(r"[{}<>\[\]$]", name):
        return f"{name!r} is a placeholder, not a bucket"
    if not _BUCKET.fullmatch(name) or ".." in name or _IP.fullmatch(name):
        return (
            f"{name!r} is not a bucket name: lowercase letters, digits, -, _ and . with a letter or digit at both ends"
        )
    if not 3 <= len(name) <= (222 if "." in name else 63) or any(len(part) > 63 for part in name.split(".")):
        return (
            f"{name!r} is not a bucket name: it has {len(name)} characters. A name has 3 to 63 characters; with dots, up to 222, "
            "and each part at most 63"
        )
    return ""


def uri_problem(uri: str) -> tuple[str, str]:
    """Return what is wrong with a gs:// URI, and what to write instead; both "" if nothing is."""
    if uri.startswith("gs://"):
        return bucket_problem(uri[5:].partition("/")[0]), ""
    text = f"{quoted(uri)} is not a Cloud Storage URI: gs://BUCKET/PATH"
    for prefix in ("/gcs/", "https://storage.googleapis.com/", "https://storage.cloud.google.com/"):
        if uri.startswith(prefix):
            return text, f"gs://{uri.removeprefix(prefix)}"
    if re.match(r"(?:gs|GS|Gs):/*", uri):
        return text, "gs://" + re.sub(r"^(?:gs|GS|Gs):/*", "", uri)
    return text, ""


def output_uri(document: Document, context: Context) -> Iterator[Problem]:
    path = f"{document.job_path}baseOutputDirectory.outputUriPrefix"
    uri = job_part(document, "baseOutputDirectory").get("outputUriPrefix")
    if uri is not None:
        text, meant = uri_problem(uri)
        if text:
            yield Problem(path, text, edits=write(meant))
    elif "baseOutputDirectory" in document.job and not document.refused_at(path):
        yield Problem(path, "baseOutputDirectory has no outputUriPrefix", "write outputUriPrefix: gs://BUCKET/PATH")


_OUTPUTS = ("AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR")


def output_unset(document: Document, context: Context) -> Iterator[Problem]:
    path = f"{document.job_path}baseOutputDirectory"
    if "baseOutputDirectory" in document.job or not document.running or document.refused_at(path):
        return
    if context.trainer is not None and "AIP_MODEL_DIR" in context.trainer.environment:
        return  # model-dir-unset reports it
    text = f"without a baseOutputDirectory Vertex AI sets none of {', '.join(_OUTPUTS)}"
    yield Problem(path, text, f"write {OUTPUT}", key_fix=f"write {OUTPUT_KEYS}")


def package_missing(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        path = f"{pool.path}.pythonPackageSpec.packageUris"
        if pool.python_package is not None and not pool.package_uris and not document.refused_at(path):
            text = "packageUris is required: without a package there is no module to run"
            yield Problem(path, text, "write packageUris with the gs:// URI of the trainer's sdist")


def package_uri(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        for path, uri in pool.items("packageUris"):
            text, meant = uri_problem(uri)
            if text:
                yield Problem(path, text, edits=write(meant))


def package_form(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        for path, uri in pool.items("packageUris"):
            if not uri.startswith("gs://") or uri.endswith(".tar.gz"):
                continue
            name = uri.rpartition("/")[2] or uri
            if uri.endswith(".whl"):
                text = f"{name} is a wheel: Google's documentation names source distributions (.tar.gz) only; pip installs both"
                yield Problem(path, text, "", Severity.INFO)
            else:
                text = f"{name!r} is not a package: a source distribution ends in .tar.gz, a wheel in .whl"
                yield Problem(path, text, "write the URI of the file that setup.py sdist made")


def _stray(text: str) -> str:
    """Return what is wrong with the Cloud Storage path that an argument or variable names, "" if nothing is."""
    flag, equals, value = text.partition("=")
    value = value if equals and flag.startswith("-") else text
    for prefix in ("gs://", "/gcs/"):
        name = value.removeprefix(prefix).partition("/")[0]
        if value.startswith(prefix):
            # $(NAME) is filled in by the service
            return "" if "$(" in name else bucket_problem(name)
    return f"{quoted(value)} is not a Cloud Storage URI: gs://BUCKET/PATH" if value.startswith("gs:") else ""


# Names that other people's buckets have had for years: a job means a folder with them.
_FOLDERS = frozenset(
    "artifacts checkpoint checkpoints ckpt data dataset datasets input inputs log logs model models output outputs "
    "result results test train training val validation weights".split()
)


_FILE = r"(?:^|[=,:;\"'\s])/gcs/([A-Za-z0-9][\w.-]*\.(?:ckpt|csv|h5|joblib|json|jsonl|keras|npy|npz|onnx|parquet|pkl|pt|pth|py|safetensors|tfrecords?|txt|ya?ml))(?![\w./-])"
"""A file right below /gcs: a bucket's name may have dots, but none ends like this."""


def _folder(text: str, buckets: set[str]) -> tuple[str, str]:
    """Return the message about a folder or file that stands where `/gcs/` has a bucket, and what to write; "" if there is none."""
    names = [one for one in _GCS.findall(text) if one in _FOLDERS] or re.findall(_FILE, text)
    name = names[0] if names else ""
    if not name or name in buckets:
        return "", ""
    bucket = min(buckets) if len(buckets) == 1 else "BUCKET"
    return f"/gcs/{name} is the bucket {name!r}: the word after /gcs/ names a bucket", f"write /gcs/{bucket}/{name}"


def _buckets(document: Document) -> set[str]:
    """Return the buckets that the job names, without those whose name below /gcs/ looks like a folder."""
    texts = [document.output_folder, *(text for pool in document.pools for text in [*_texts(pool), *pool.package_uris])]
    named = {name for text in texts for name in _GS.findall(text)}
    return named | {
        name for text in texts for name in _GCS.findall(text) if name not in {*_FOLDERS, *re.findall(_FILE, text)}
    }


def stray_uri(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        values = [(f"{path}.value", str(variable.get("value", ""))) for path, variable in pool.items("env")]
        for path, text in [*pool.items("args"), *values]:
            wrong, fix = _stray(text), ""
            if not wrong and "/gcs/" in text:
                wrong, fix = _folder(text, _buckets(document))
            if wrong:
                yield Problem(path, wrong, fix)


_GS = re.compile(r"gs://([a-z0-9][a-z0-9._-]*)")
_GCS = re.compile(r"(?:^|[=,:;\"'\s])/gcs/([a-z0-9][a-z0-9._-]*)")


def _texts(pool: Pool) -> list[str]:
    """Return the words of a pool's command, its arguments and the values of its variables."""
    return [*pool.words, *(str(one.get("value", "")) for one in pool.env)]


def _mounted(pool: Pool) -> list[str]:
    """Return the buckets that a pool reads or writes below /gcs, as far as its command, arguments and variables name them."""
    return [name for text in _texts(pool) for name in _GCS.findall(text)]


def gcs_regions(document: Document, context: Context) -> Iterator[Problem]:
    # reversed, so that the first pool of each bucket stays
    named = {name: pool for pool in reversed(document.running) for name in _mounted(pool)}
    names = sorted(named)
    if len(names) > 1:
        where = f", preferably {context.region}" if context.region else ""
        text = f"/gcs/ is used for the buckets {', '.join(names)}: to be mounted, they must be in one region{where}"
        yield Problem(named[names[0]].program_path, text)


_GCSFUSE = re.compile(r"(?<![\w./-])gcsfuse(?![\w-])")


def mounts_again(document: Document, context: Context) -> Iterator[Problem]:
    text = "gcsfuse mounts a bucket; Vertex AI already mounts each bucket at /gcs/BUCKET"
    fix = "read and write /gcs/BUCKET, or create a link: ln -s /gcs/BUCKET /data"
    for pool in document.running:
        for path, word in [*pool.items("command"), *pool.items("args")]:
            if _GCSFUSE.search(word):
                yield Problem(path, text, fix, sure=True)
    if context.trainer is None or not context.trainer.mounts:
        return
    from vertexrig.checks._arguments import trainer_pools  # a POST has no trainer to read

    place, pools = context.trainer.mounts[0], trainer_pools(document, context.trainer)
    if pools:
        yield Problem(pools[0].program_path, f"{place.where}: {text}", fix)


def gcs_image(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.running:
        if pool.accelerator_type == "NVIDIA_B200" and _mounted(pool):
            text = f"pool {pool.index} reads /gcs/ on B200 machines, whose image fails to mount Cloud Storage"
            yield Problem(pool.program_path, text, "read gs:// with a client library, or copy the data first")


RULES = (
    Rule("gcs-regions", Severity.INFO, "The buckets used below /gcs/ are in one region.", PRACTICE, gcs_regions),
    Rule("gcsfuse", Severity.WARNING, "A job leaves mounting of buckets to Vertex AI.", CODE_DOC, mounts_again),
    Rule("gcs-image", Severity.WARNING, "/gcs/ is not used on machines whose image cannot mount it.", GCSFUSE, gcs_image),
    Rule("output-uri", Severity.ERROR, "outputUriPrefix is a gs:// URI.", join(REST, _BUCKET_RULES), output_uri, "safe"),
    Rule("output-unset", Severity.INFO, "A job has an output folder.", REST, output_unset),
    Rule("package-missing", Severity.ERROR, "A Python program has packages.", REST, package_missing),
    Rule("package-uri", Severity.ERROR, "Packages are gs:// URIs.", join(REST, _BUCKET_RULES, WALKTHROUGH), package_uri, "safe"),
    Rule("package-form", Severity.WARNING, "Packages are source distributions.", PACKAGE_DOC, package_form),
    Rule("stray-uri", Severity.WARNING, "gs:// URIs and /gcs/ paths in arguments and variables name a bucket.",
         join(_BUCKET_RULES, CODE_DOC, WALKTHROUGH), stray_uri),
)  # fmt: skip
