"""The trainer's source distribution: `python setup.py sdist`.

There is no pyproject.toml here on purpose: with one, pip builds in isolation and needs the network to do so, and a
training container may have none.
"""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent


def requirements() -> list[str]:
    """Return the lines of requirements.txt that name a requirement."""
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


setup(
    name="trainer",
    version="0.1.0",
    description="Trains image classifiers with TensorFlow on one device or many, in the roles of a Vertex AI job.",
    packages=["trainer"],
    python_requires=">=3.10",
    install_requires=requirements(),
)
