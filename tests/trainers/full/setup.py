from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="trainer",
    version="0.1.0",
    packages=find_packages(),
    install_requires=Path(__file__).with_name("requirements.txt").read_text().splitlines(),
)
