"""How a framework comes into an image of our own, for each kind of machine: requirements, Python, and what else TPUs need.

Sources: the TPU rows are from "Train with TPU VMs" (Vertex AI documentation, mirror of 2026-08-22); the extras `and-cuda`,
`cuda12` and `tpu` are in the metadata of tensorflow, jax and torch_xla on PyPI (2026-11-21). PyPI's torch brings CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from vertexrig.errors import PackageError
from vertexrig.trainer_source.trainer_model import TrainerSource

KINDS = ("cpu", "gpu", "tpu")
_TPU = "https://storage.googleapis.com"
# Where the NVIDIA container runtime puts the driver, as in the images of nvidia/cuda and pytorch/pytorch.
_DRIVER = MappingProxyType({"LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"})


@dataclass(frozen=True)
class Recipe:
    """A framework on one kind of machine.

    Args:
        requirements: What pip installs; `{pin}` is the version.
        version: The only version there is for this kind, "" for any.
        python: The only Python it is made for, "" for any.
        find_links: A page with further wheels.
        wheel: A wheel that replaces the framework's own after all else is installed.
        library: A shared library that must be in the image's /lib.
        env: Variables of the image.
    """

    requirements: tuple[str, ...] = ()
    version: str = ""
    python: str = ""
    find_links: str = ""
    wheel: str = ""
    library: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


RECIPES: Mapping[tuple[str, str], Recipe] = {
    ("", "cpu"): Recipe(),
    ("", "gpu"): Recipe(env=_DRIVER),
    ("tf", "cpu"): Recipe(("tensorflow{pin}",)),
    ("tf", "gpu"): Recipe(("tensorflow[and-cuda]{pin}",), env=_DRIVER),
    ("tf", "tpu"): Recipe(
        ("tensorflow{pin}",), version="2.15.0", python="3.10",
        wheel=f"{_TPU}/cloud-tpu-tpuvm-artifacts/tensorflow/tf-2.15.0/"
              "tensorflow-2.15.0-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        library=f"{_TPU}/cloud-tpu-tpuvm-artifacts/libtpu/1.9.0/libtpu.so",
    ),
    ("pytorch", "cpu"): Recipe(("torch{pin}",)),
    ("pytorch", "gpu"): Recipe(("torch{pin}",), env=_DRIVER),
    ("pytorch", "tpu"): Recipe(
        ("torch{pin}", "torch_xla[tpu]{pin}"), find_links=f"{_TPU}/libtpu-releases/index.html",
        env=MappingProxyType({"PJRT_DEVICE": "TPU"}),
    ),
    ("jax", "cpu"): Recipe(("jax{pin}",)),
    ("jax", "gpu"): Recipe(("jax[cuda12]{pin}",), env=_DRIVER),
    ("jax", "tpu"): Recipe(("jax[tpu]{pin}",), find_links=f"{_TPU}/jax-releases/libtpu_releases.html"),
    ("sklearn", "cpu"): Recipe(("scikit-learn{pin}",)),
    ("sklearn", "gpu"): Recipe(("scikit-learn{pin}",), env=_DRIVER),
    ("xgboost", "cpu"): Recipe(("xgboost{pin}",)),
    ("xgboost", "gpu"): Recipe(("xgboost{pin}",), env=_DRIVER),
}  # fmt: skip
"""By framework and kind."""


@dataclass(frozen=True)
class SystemPackage:
    """A Debian package that a distribution of PyPI needs at run time and the base image lacks."""

    package: str
    source: str


_OPENCV = SystemPackage(
    "libgl1", "its wheel 5.0.0.93 links libGL.so.1, read 2026-11-22; opencv-python-headless does not"
)
# Not here: wheels that bring their library, as scikit-learn, xgboost and soundfile (0.12 and later, its README on PyPI) do.
SYSTEM_PACKAGES: Mapping[str, SystemPackage] = {
    "lightgbm": SystemPackage("libgomp1", "its wheel 4.7.0 links libgomp.so.1, read 2026-11-22"),
    "opencv-python": _OPENCV,
    "opencv-contrib-python": _OPENCV,
    "python-magic": SystemPackage("libmagic1", "its page on PyPI, 0.4.27, read 2026-11-22"),
    "graphviz": SystemPackage("graphviz", "its page on PyPI, 0.21, read 2026-11-22"),
}
"""By distribution."""


DISTRIBUTIONS: Mapping[str, str] = {
    "tf": "tensorflow",
    "pytorch": "torch",
    "jax": "jax",
    "sklearn": "scikit-learn",
    "xgboost": "xgboost",
    "ray": "ray",
}
"""Framework -> its distribution on PyPI."""

FRAMEWORKS: Mapping[str, str] = {
    **dict.fromkeys(("tensorflow", "keras", "tf_keras"), "tf"),
    **dict.fromkeys(("torch", "pytorch_lightning", "lightning", "transformers"), "pytorch"),
    "xgboost": "xgboost",
    **dict.fromkeys(("jax", "flax", "optax"), "jax"),
    # the last two have no image of their own; pip puts them into scikit-learn's, which has what else they need
    **dict.fromkeys(("sklearn", "lightgbm", "catboost"), "sklearn"),
}
"""Module -> framework.

An import at start-up counts more than one inside a function, then an unguarded one more than one in try/except; ties go to table order.
"""


def framework_of(source: TrainerSource) -> str | None:
    """Return `tf`, `pytorch`, `xgboost`, `jax` or `sklearn`, by what a trainer imports; None if it imports none of them, or only in
    functions within try/except.
    """
    # False sorts first: imported at start-up, and not guarded
    ranks: dict[str, tuple[bool, bool]] = {}
    for item in source.imports:
        module = item.module.split(".")[0]
        ranks[module] = min(ranks.get(module, (True, True)), (not item.at_import, item.caught))
    known = [module for module in FRAMEWORKS if ranks.get(module, (True, True)) != (True, True)]
    return FRAMEWORKS[min(known, key=ranks.__getitem__)] if known else None


def recipe(framework: str, kind: str) -> Recipe:
    """Return the recipe of a framework without its version; PackageError if there is none for this kind of machine."""
    found = RECIPES.get((framework, kind))
    if found is None:
        able = sorted(name for name, one in RECIPES if one == kind and name)
        named = f"framework {framework}" if framework else "an image without a framework"
        fix = f"write one under trainer: build: {{framework: {able[0]}}}" if able else "use a custom image"
        raise PackageError(f"{named} has no {kind.upper()} image. These have one: {', '.join(able)}; {fix}")
    return found


def pinned(version: str) -> str:
    """Return a version as pip takes it: `2.21` stands for each of its patches, `2.21.1` for itself."""
    if not version:
        return ""
    # `~=2.21.0` allows every 2.21.x; a lone `2` has no such form, since ~= needs two parts
    return f"=={version}" if version.count(".") > 1 else f"~={version}.0" if "." in version else f"=={version}.*"
