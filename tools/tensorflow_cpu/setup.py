"""A distribution named tensorflow that brings tensorflow-cpu and nothing else; `tools/venv.py` installs it.

On Linux with x86-64 the wheel of tensorflow is 545 MiB, that of tensorflow-cpu 261 MiB (2.21.0 on PyPI, 2026-11-21):
the same program without the code for GPUs. Other distributions, tf-keras among them, require the name tensorflow and
would bring the large one as well. Elsewhere the wheel of tensorflow has no such code, and this is not used.
"""

import re
from pathlib import Path

from setuptools import setup

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
(VERSION,) = re.findall(r"^tensorflow==(\S+)", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)

setup(
    name="tensorflow",
    version=f"{VERSION}+cpu",
    description="tensorflow-cpu under the name that other distributions require",
    py_modules=[],
    packages=[],
    install_requires=[f"tensorflow-cpu=={VERSION}"],
)
