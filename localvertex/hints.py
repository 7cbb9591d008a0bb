"""Well-known causes of failed jobs, recognised by the last lines of a trainer's output, and what to do about each.

The causes are those that users of Vertex AI report most.
"""

from __future__ import annotations

import os
import re

from vertexrig.catalog import load
from vertexrig.package.image_modules import declared_modules

# (pattern in the output, its cause and what to do); the first match counts
HINTS: tuple[tuple[str, str], ...] = (
    (
        r"invalid int value: '[0-9]+\.0'",
        "Vertex AI sends DISCRETE parameters as floating-point text such as 128.0: parse with int(float(text)), not type=int",
    ),
    (
        r"--hydra-help(?s:.*)unrecognized arguments",
        "Hydra takes lr=0.1, not --lr=0.1: write its arguments without dashes",
    ),
    (
        r"unrecognized arguments: (?:\S*/)?(?:python[0-9.]*|bash|sh) ",
        "args are given to the image's ENTRYPOINT, and these begin with a program: leave it out, or put it into the container's command",
    ),
    (
        r"unrecognized arguments|no such option|Unknown command line flag|arguments are not used by the HfArgumentParser",
        "an argument or a study's parameterId is not a flag of the trainer: `vertexrig check` names the nearest one",
    ),
    (
        r"the following arguments are required",
        "a required flag is passed neither by args nor by the study: add it to args, or give it a default",
    ),
    (
        r"PerReplica|Attempt to convert a value \(PerReplica",
        "Keras 3 does not train under MultiWorkerMirroredStrategy: use tf-keras (import tf_keras, TF_USE_LEGACY_KERAS=1)",
    ),
    (
        r"MergeV2Checkpoints|checkpoint.*\.tmp.*No such file|_temp.*part-0000",
        "two processes saved to the same folder: only the chief writes to AIP_MODEL_DIR, every other worker to a local temporary folder",
    ),
    (r"KeyError: 'TF_CONFIG'", "TF_CONFIG is not set on a single-replica job: read it with os.environ.get"),
    (
        r"KeyError: '(master|chief)'",
        "the first replica is called chief or master, and a cluster has only one of the two keys: accept both",
    ),
    (
        r"Collective ops must be configured at program startup",
        "create the distribution strategy before anything else touches TensorFlow",
    ),
    (r"Please provide a TPU Name", "on a TPU VM the resolver takes tpu='local'"),
    (
        r"aren't enough elements in this dataset for each shard|fewer files than workers",
        "there are fewer files than workers: shard by element instead of by file",
    ),
    (
        r"Name or service not known|[Nn]ame resolution|Failed to resolve|[Cc]ould not resolve host|getaddrinfo failed"
        r"|nodename nor servname|No address associated with hostname",
        "a host's name cannot be resolved: check its spelling and this machine's network; on Vertex AI a job in a VPC network "
        "without a way out does not reach it either, so put what it needs into the bucket",
    ),
    (
        r"No matching distribution found for",
        "no package index has a distribution of that name and version: correct the import or the requirement, or name the "
        "distribution that has the module in the trainer's requirements",
    ),
    (
        r"ResolutionImpossible|conflicting dependencies",
        "the package's requirements contradict what the image has: do not pin tensorflow or protobuf",
    ),
    (
        r"No space left on device|\[Errno 28\]",
        "a disk is full: free space where the state folder and the container engine keep their files; on Vertex AI give the "
        "pool a larger diskSpec.bootDiskSizeGb",
    ),
    (
        r"out of memory|low on memory|OOM when allocating|MemoryError",
        "use a machine type with more memory, or a smaller batch",
    ),
    (
        r"\[Errno 13\]|PermissionError|cannot be (written|read)\b.*Permission denied",
        "this user may not read or write the file or folder named above: change its permissions; a trainer's results go where "
        "AIP_MODEL_DIR says",
    ),
    (
        r"https?://(?:[\w.-]+\.)?storage\.googleapis\.com/\S+.*\b404\b|\b404\b.*https?://(?:[\w.-]+\.)?storage\.googleapis\.com/",
        "the bucket or object is not on this machine: list a public bucket in public_buckets under local: in vertexrig.yaml, and it is "
        "read from Google; or put the object into the local bucket",
    ),
    (
        r"Permission denied|PERMISSION_DENIED|403 |does not have storage\.",
        "the job's service account may not do this: it needs the role on the bucket or resource named above",
    ),
)


# With and without quotes: `python -m` writes none around the name.
_MODULE = re.compile(r"No module named '?(?P<module>[\w.]+)")
# framework of a prebuilt image -> its modules. Source: the page pre-built-containers, 2026-08-22
_MODULES = {
    "tf": ("tensorflow", "keras"),
    "pytorch": ("torch",),
    "sklearn": ("sklearn",),
    "xgboost": ("xgboost",),
    "ray": ("ray",),
}
INTERPRETERS = "write `local: {interpreters: auto}` in the project file, which makes Pythons with what the images have"
OWN_INTERPRETER = (
    "name a Python that has what the image has: `local: {interpreters: {PATTERN_OF_IMAGE: /path/to/venv/bin/python}}` in the "
    "project file"
)
"""For an image whose content is not known. It is known of prebuilt images, and of those that are made of them here."""
# pandas: Missing optional dependency 'fsspec'. fsspec: Please install gcsfs. Keras: You must install pydot (`pip install pydot`).
_OPTIONAL = re.compile(
    r"^ImportError: .*?(?:optional dependency|[Pp]lease install|must install|pip install(?: -U| --upgrade)?) ['\"`]?"
    r"(?!(?:an?|it|the|this|that|with)\b)(?P<name>[A-Za-z][\w-]*)",
    re.MULTILINE,
)
_OF_VERSIONS = frozenset({"AttributeError", "TypeError", "InvalidParameterError", "UnpicklingError"})
"""Errors that a library raises for a name or an argument that another version of it takes. The last two: scikit-learn, and torch.load."""
_SAYS_VERSIONS = re.compile(
    r"cannot import name|undefined symbol|No module named '?\w+\.|[Dd]eprecated|no longer|(?:was|been|were) removed|not recognized"
    r"|unexpected keyword|[Ii]ncompatible|(?:newer|older|different|later) version"
)


def hint(text: str, image: str = "", *, container: bool = False, machine: str = "") -> str:
    """Return the most likely cause of a failed replica's last output, "" if the cause is not a well-known one.

    `container` says that the replica ran in its image; otherwise a Python of this machine ran it. `machine` is its machine type.
    """
    known = _memory(machine) if "Replicas low on memory" in text else ""
    known = known or next((words for pattern, words in HINTS if re.search(pattern, text)), "")
    module = _MODULE.search(text)
    # A known cause first: its words say more than that a module is missing.
    if known:
        return known
    if optional := _OPTIONAL.search(text):
        return _optional(optional["name"], image, container)
    return _missing(module["module"], image, container) if module else ""


def may_be_version(traceback: str, own: str = "") -> bool:
    """Whether the error of a traceback is one that another version of a library may not raise.

    An installed library has to raise it, and not the trainer's own package, whose top-level module is `own`.
    """
    frames = list(re.finditer(r'^\s*File "([^"]+)", line \d+', traceback, re.MULTILINE))
    library = frames[-1][1].rpartition("/site-packages/") if frames else ("", "", "")
    if not library[1] or library[2].partition("/")[0] in (own, f"{own}.py"):
        return False
    # Lines of the frame are indented.
    error = re.search(
        r"^(?P<name>\w+(?:\.\w+)*)(?:: (?P<message>(?s:.*)))?$", traceback[frames[-1].end() :], re.MULTILINE
    )
    if error is None:
        return False
    name = error["name"].rpartition(".")[2]
    return name in _OF_VERSIONS or bool(_SAYS_VERSIONS.search(error["message"] or ""))


def _memory(machine: str) -> str:
    """Return what to do about a replica that took too much memory, "" if that of its machine type is not known."""
    found = load().machines.get(machine)
    if found is None or not found.memory_gb:
        return ""
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    has = f"{machine} has {found.memory_gb:g} GB of memory"
    if here < found.memory_gb:
        return f"{has}, and this machine has {here:.0f} GB: the program may fit on Vertex AI; here, use a smaller batch"
    return f"{has}: use a machine type with more memory, or a smaller batch"


def _modules_of(image: str) -> set[str]:
    """Return the top-level modules that a prebuilt image has by its page, none of another image."""
    prebuilt = load().image(image)
    if prebuilt is None:
        return set()
    listed = declared_modules(one.partition("==")[0] for one in prebuilt.packages)
    return {*_MODULES.get(prebuilt.framework, ()), *listed}


def _optional(name: str, image: str, container: bool) -> str:
    """Return what to do about a package that a library needs for what the trainer does, and that is not there."""
    if not container and name.replace("-", "_") in _modules_of(image):
        return _missing(name.replace("-", "_"), image, container)
    where = "the trainer's requirements" if load().image(image) and not container else "the image"
    return f"a library needs the package {name} for what the trainer does: add {name} to {where}"


def _missing(module: str, image: str, container: bool) -> str:
    """Return what to do about a missing module, which this machine lacks, and possibly the image, too."""
    prebuilt, top, has = load().image(image), module.partition(".")[0], _modules_of(image)
    here = f"install it here, or {OWN_INTERPRETER if prebuilt is None else INTERPRETERS}"
    if container:
        return f"the image does not have the module {module}: add its distribution to the image, or correct the import"
    if top in has and prebuilt is not None:
        return f"this machine does not have {top}, and the image {prebuilt.name} does: {here}"
    if prebuilt is None:
        return (
            f"this machine does not have the module {module}: if the image has it, {here}; if not, add it to the image"
        )
    return (
        f"the module {module} comes neither with the trainer's package nor with this machine's Python: name its "
        f"distribution in the trainer's requirements, or correct the import; if {prebuilt.name} has it, {here}"
    )
