"""The environment of a replica on this machine, and the local paths of gs:// and /gcs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from localvertex.object_paths import odd_path, plain_parts
from localvertex.state import NAMES
from vertexrig.errors import JobFailedError
from vertexrig.spec.document import Pool

# What passes from the user's environment, besides PATH, to replicas, to pip and so to a package's setup.py; all else
# stays outside, as in the cloud. By name, because a prefix such as NVIDIA_ also fits NVIDIA_API_KEY.
# fmt: off
_PASSED = frozenset({
    "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # pip's settings; of its index URLs one may hold a password, which pip needs
    "PIP_CACHE_DIR", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_CONFIG_FILE", "PIP_CONSTRAINT", "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_CACHE_DIR", "PIP_NO_INDEX", "PIP_ONLY_BINARY",
    "PIP_PREFER_BINARY", "PIP_PROXY", "PIP_RETRIES", "PIP_TIMEOUT", "PIP_TRUSTED_HOST",
    "CUDA_CACHE_PATH", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_LAUNCH_BLOCKING", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES",
    "TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_VMODULE", "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS",
    "TF_XLA_FLAGS", "XLA_FLAGS",
    "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_SCHEDULE", "OPENBLAS_NUM_THREADS",
    "KERAS_HOME", "TFDS_DATA_DIR", "HF_HOME",
})
_PROXIES = frozenset({"http_proxy", "https_proxy", "no_proxy", "all_proxy"})
_CREDENTIALS = frozenset({
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_OAUTH_ACCESS_TOKEN", "BOTO_CONFIG",
})
# fmt: on

STARTUP = Path(__file__).with_name("startup")
NODE = Path(__file__).parents[1] / "front/node.cjs"
"""What Python and Node load at their start."""

# Only before a bucket's first character: a bare "gs://", as in a test of a prefix, is left alone.
_GS = re.compile(r"gs://(?=[a-z0-9])")
# Only where a path begins: at the start, or after what separates values in an argument.
_GCS = re.compile(r"(?:(?<=^)|(?<=[=,:;\"'\s]))/gcs/(?=[a-z0-9])")
# `..` as a whole part of the path; names such as `..old` are fine.
_UPWARD = re.compile(r"(?:gs://|(?:(?<=^)|(?<=[=,:;\"'\s]))/gcs/)[^\s\"',;]*?/\.\.(?![^/\s\"',;])")
_BUCKET_PATH = re.compile(r"gs://([a-z0-9][a-z0-9._-]*)(/[^\s\"',;]*)?")


def bucket_folder(root: Path) -> Path:
    """Return where buckets lie: `<root>/gs/<bucket>/<object>`."""
    return root / "gs"


def local_path(uri: str, root: Path) -> Path:
    """Return the file of a gs:// URI or a /gcs/ path; any other text is a local path."""
    return Path(map_paths(uri, bucket_folder(root)))


def object_file(uri: str, root: Path) -> Path:
    """Return the file of an object to read, wherever the storage keeps it: `a//b` is a name of objects but not of files."""
    path = local_path(uri, root)
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    if not uri.startswith("gs://") or (path.is_file() and plain_parts(name)):
        return path
    odd = odd_path(root / "storage", bucket, name)
    return odd if odd.is_file() else path


def map_paths(text: str, buckets: Path | str, *, keep_gs: bool = False) -> str:
    """Return an argument or value whose `/gcs/` paths, and without `keep_gs` also its `gs://` paths, lead to the folder of the buckets.

    A `/gcs/` in the middle of another path is left alone.

    Raises:
        JobFailedError: A path has a `..`, which on this machine would lead out of its bucket.
    """
    refuse_upward(text)
    folder = f"{buckets}/".replace("\\", "\\\\")
    return _GCS.sub(folder, text if keep_gs else _GS.sub(folder, text))


def written_to_gs_folder(folder: Path, since: float) -> str:
    """Return a sentence on the files that a replica wrote to a folder `gs:` of its working directory after `since`, "" if it wrote none."""
    # ctime, because copies may bring an old mtime with them; a second less, because some file systems have no finer
    # times.
    everything = (folder / "gs:").rglob("*")
    # Empty folders are harmless: os.makedirs() makes them for programs that then write with a cloud library.
    found = [path for path in everything if path.is_file() and path.lstat().st_ctime >= since - 1]
    if not found:
        return ""
    uri = re.sub(r"^gs:/+", "gs://", min(found).relative_to(folder).as_posix())
    return (
        f"it wrote {uri} to a folder named 'gs:' in its working directory, as open() does with a gs:// path; "
        f"on Vertex AI that is lost with the machine. Write to /gcs/{uri[5:]}, or with tf.io.gfile, google-cloud-storage "
        "or fsspec"
    )


def refuse_upward(*texts: str) -> None:
    """Raise JobFailedError for a `gs://` or `/gcs/` path with a `..`, which here would lead out of its bucket."""
    for text in texts:
        found = _UPWARD.search(text)
        if found:
            raise JobFailedError(f"{text[:200]!r} has a '..' after {found.group()[:-2]!r}: a path in a bucket has none")


def absent(texts: Iterable[str], root: Path) -> list[str]:
    """Return the gs:// URIs among arguments whose bucket is not here, each once."""
    found: dict[str, None] = {}
    for text in texts:
        for match in _BUCKET_PATH.finditer(text):
            if not (bucket_folder(root) / match.group(1)).is_dir():
                found[match.group(0)] = None
    return list(found)


def machine_environment(user: Mapping[str, str], config: Path, *, with_credentials: bool = False) -> dict[str, str]:
    """Return the part of the user's environment that replicas, pip and a package's setup.py see.

    Without the user's Google credentials, `config` (an empty folder, or /dev/null) replaces gcloud's configuration, so that no login is
    found through HOME.
    """
    result = {name: value for name, value in user.items() if name in _PASSED or name.lower() in _PROXIES}
    if with_credentials:
        result |= credentials(user)
    else:
        # google-auth looks for a login in CLOUDSDK_CONFIG, and would then wait for a metadata server that is not here
        result |= {"CLOUDSDK_CONFIG": str(config), "NO_GCE_CHECK": "true", "BOTO_CONFIG": os.devnull}
    return result


def credentials(user: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold or name the user's credentials."""
    return {name: value for name, value in user.items() if name in _CREDENTIALS or name.startswith("CLOUDSDK_")}


def needs_startup_hook(env: Mapping[str, str]) -> bool:
    """Whether Python has to load `STARTUP` in this replica: it has virtual devices, or reaches Google's host names here."""
    return bool({"TRAINER_VIRTUAL_DEVICES", NAMES} & env.keys())


def search_path(folders: Iterable[Path], user: Mapping[str, str]) -> str:
    """PATH with `folders` in front of the user's own."""
    return os.pathsep.join([*map(str, folders), user.get("PATH", os.defpath)])


def accelerators_here() -> int:
    """GPUs of this machine that a CUDA program would find."""
    # nvidia0 and so on are GPUs; nvidiactl and nvidia-uvm are not.
    return sum(path.name[len("nvidia") :].isdigit() for path in Path("/dev").glob("nvidia*"))


def virtual_devices(pool: Pool) -> int:
    """Return how many virtual CPU devices replace a replica's accelerators; 0 when it has none, or when they are here."""
    if pool.tpu_topology and re.fullmatch(r"[0-9]+(x[0-9]+)*", pool.tpu_topology):
        chips = math.prod(map(int, pool.tpu_topology.split("x")))
        per_vm = re.search(r"-([0-9]+)t$", pool.machine_type)  # ct5lp-hightpu-4t holds four chips of a larger slice
        return min(chips, int(per_vm.group(1))) if per_vm else chips
    if not pool.accelerator_type:
        return 0
    count = max(pool.accelerator_count, 1)
    here = 0 if pool.accelerator_type.startswith("TPU") else accelerators_here()
    return count if here < count else 0


def accelerator_difference(pool: Pool) -> str:
    """Return one sentence on what replaces a pool's accelerators, "" if nothing does."""
    count = virtual_devices(pool)
    if not count:
        return ""
    name = pool.accelerator_type or pool.machine_type
    what = (
        f"{name} with topology {pool.tpu_topology}"
        if pool.tpu_topology
        else f"{max(pool.accelerator_count, 1)} x {name}"
    )
    devices = "device" if count == 1 else "devices"
    return f"{count} virtual CPU {devices} (TRAINER_VIRTUAL_DEVICES) instead of {what} per replica of workerpool{pool.index}"
