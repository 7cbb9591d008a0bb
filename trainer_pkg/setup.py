"""The trainer's source distribution: `python setup.py sdist`.

There is no pyproject.toml here on purpose: with one, pip builds in isolation and needs the network to do so, and a
training container may have none.
"""

from setuptools import setup

setup(
    name="trainer",
    version="0.1.0",
    description="Trains image classifiers with TensorFlow on one device or many, in the roles of a Vertex AI job.",
    packages=["trainer"],
    python_requires=">=3.10",
    # TensorFlow is in the container. `vertexrig package` pins tf-keras to the container's TensorFlow minor version; an open
    # pin would let pip replace that TensorFlow.
    install_requires=["tf-keras", "cloudml-hypertune", "matplotlib", "scikit-learn", "tensorboard"],
)
