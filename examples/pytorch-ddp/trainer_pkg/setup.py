"""The trainer's source distribution; there is no pyproject.toml, so that it installs in a container without a network."""

from setuptools import setup

setup(
    name="digits-ddp",
    version="0.1.0",
    description="Trains a classifier of scikit-learn's digits with PyTorch, in one process or many.",
    packages=["digits"],
    python_requires=">=3.10",
    # torch is in the container; a requirement without a bound would replace it
    install_requires=["scikit-learn>=1.2", "cloudml-hypertune"],
)
