"""Which modules an image brings, and which distribution brings which module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vertexrig.trainer_source.trainer_model import Import

SUPPLIED: Mapping[str, str] = {
    **dict.fromkeys(
        "tensorflow hypertune sympy pandas xgboost pythonjsonlogger webob paste mock".split(),
        "package list of tf-cpu.2-17.py310, pre-built containers page, mirror of 2026-08-22",
    ),
    **dict.fromkeys(
        ("google", "googleapiclient"),
        "google.cloud.storage: custom training code requirements page, mirror of 2026-08-22; google.protobuf: tensorflow",
    ),
    **dict.fromkeys(
        """
        absl astunparse flatbuffers gast grpc h5py keras ml_dtypes numpy opt_einsum packaging pkg_resources requests setuptools
        six tensorboard termcolor typing_extensions wrapt
        """.split(),
        "required by the tensorflow wheel (its metadata, 2.21.0)",
    ),
    **dict.fromkeys(("dateutil", "pytz", "scipy"), "required by the image's pandas and xgboost"),
}
"""Top-level modules that a prebuilt TensorFlow image brings, and how that is known."""
SUPPLIED_ELSEWHERE = frozenset({"torch", "torchvision", "sklearn", "jax", "flax", "optax", "joblib", "ray"})
"""Brought by some other image: allowed when the image's TensorFlow version is not given."""
IMPORT_NAMES: Mapping[str, tuple[str, ...]] = {
    "cloudml-hypertune": ("hypertune",),
    "scikit-learn": ("sklearn",),
    "scikit-image": ("skimage",),
    "pillow": ("PIL",),
    "pyyaml": ("yaml",),
    "opencv-python": ("cv2",),
    "opencv-python-headless": ("cv2",),
    "absl-py": ("absl",),
    "protobuf": ("google",),
    "python-dateutil": ("dateutil",),
    "beautifulsoup4": ("bs4",),
    "grpcio": ("grpc",),
    "tf-models-official": ("official",),
    "tf-nightly": ("tensorflow",),
    "attrs": ("attr", "attrs"),
    "gitpython": ("git",),
    "msgpack-python": ("msgpack",),
    "python-json-logger": ("pythonjsonlogger",),
    "segmentation-models": ("segmentation_models",),
    "faiss-cpu": ("faiss",),
    "faiss-gpu": ("faiss",),
    "hydra-core": ("hydra",),
    "antlr4-python3-runtime": ("antlr4",),
    "umap-learn": ("umap",),
    "imbalanced-learn": ("imblearn",),
    "typed-argument-parser": ("tap",),
    "keras-tuner": ("keras_tuner", "kerastuner"),
    "lightning": ("lightning", "lightning_fabric"),
}
"""Distributions whose modules have other names than they have."""
_HUB = "huggingface-hub numpy packaging pyyaml tqdm fsspec filelock requests"
_LIGHTNING = (
    "torch torchmetrics lightning-utilities fsspec packaging pyyaml tqdm typing-extensions numpy pytorch-lightning"
)
_TRANSFORMERS = f"{_HUB} regex tokenizers safetensors typer"
BRINGS: Mapping[str, frozenset[str]] = {
    name: frozenset(names.split())
    for name, names in {
        "hydra-core": "omegaconf antlr4-python3-runtime packaging pyyaml",
        "omegaconf": "antlr4-python3-runtime pyyaml",
        "lightning": _LIGHTNING,
        "pytorch-lightning": _LIGHTNING,
        "transformers": _TRANSFORMERS,
        "datasets": f"{_HUB} pyarrow dill pandas xxhash multiprocess",
        "accelerate": f"{_HUB} psutil torch safetensors",
        "keras-tuner": "keras packaging requests kt-legacy grpcio protobuf",
        "sentence-transformers": f"{_TRANSFORMERS} torch scikit-learn scipy joblib threadpoolctl transformers",
        "scikit-learn": "numpy scipy joblib threadpoolctl",
        "seaborn": "numpy pandas matplotlib",
        "cloudml-hypertune": "",
        "tf-keras": "",
        **dict.fromkeys(("numpy", "pyyaml", "tqdm", "absl-py", "psutil"), ""),
    }.items()
}
"""Distributions that come with some that trainers often require: their metadata on PyPI, 2026-11-26."""
_UNTIL_3_11 = frozenset({"asynchat", "asyncore", "distutils", "imp", "smtpd"})
_UNTIL_3_12 = frozenset("aifc audioop cgi cgitb chunk crypt imghdr mailcap nntplib pipes sndhdr telnetlib uu".split())
"""Modules that newer Pythons left out and the image's 3.10 still has."""


_NAMED_LIKE_FILES = frozenset({"evaluate", "config", "metrics", "schedule", "test", "visualize"})
"""Distributions, and a part of Python, whose modules have names that trainers give to their own files."""


def is_supplied(top: str, tf_version: str | None) -> bool:
    """Whether the image brings a top-level module; without a TensorFlow version, whether some prebuilt image does."""
    older = top in _UNTIL_3_11 or top in _UNTIL_3_12
    return top in SUPPLIED or older or (tf_version is None and top in SUPPLIED_ELSEWHERE)


def own_module(item: Import) -> str:
    """Return the trainer's module that an import means and does not find, such as `trainer.model`; "" if it may mean a distribution's."""
    if not item.beside:
        return ""
    top = item.module.split(".")[0]
    known = {*BRINGS, *IMPORT_NAMES, *_NAMED_LIKE_FILES}.union(*BRINGS.values())
    return "" if is_supplied(top, None) or top.lower() in declared_modules(known) else item.beside


def distribution_of(top: str) -> str:
    """Return the distribution on PyPI that brings a top-level module, as far as its name tells."""
    return next((name for name, modules in IMPORT_NAMES.items() if top in modules), top.replace("_", "-"))


def brought(
    distributions: Iterable[str], locked: Mapping[str, frozenset[str]]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the distributions with those that they require, and those of them whose requirements are not known.

    They are known by the trainer's lock file, by `BRINGS`, or by the metadata of this machine.

    Args:
        distributions: What a trainer requires.
        locked: What each distribution of its lock file brings.
    """
    names: set[str] = set()
    unknown: list[str] = []
    for name in dict.fromkeys(map(normalise, distributions)):
        left = [name]
        while left:  # of a lock file, what is brought brings more
            if (one := left.pop()) not in names:
                names.add(one)
                left += locked.get(one, ())
        if name in locked:
            continue
        if name in BRINGS:
            names |= BRINGS[name]
            continue
        from importlib import metadata  # 25 ms, and rarely needed

        try:
            required = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            unknown.append(name)
            continue
        found = (re.match(r"[\w.-]+", one) for one in required if "extra ==" not in one)
        names |= {normalise(one[0]) for one in found if one}
    return frozenset(names), tuple(unknown)


def normalise(name: str) -> str:
    """Return a distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared_modules(distributions: Iterable[str]) -> frozenset[str]:
    """Top-level modules, in small letters, that distributions of these names may bring."""
    names: set[str] = set()
    for distribution in map(normalise, distributions):
        plain = distribution.replace("-", "_")
        # google-cloud-x brings the namespace google; python-x often brings x
        names |= {plain, plain.split("_")[0] if plain.startswith("google_") else plain, plain.removeprefix("python_")}
        names |= {name.lower() for name in IMPORT_NAMES.get(distribution, ())}
    return frozenset(names)
