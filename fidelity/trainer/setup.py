from setuptools import setup

setup(name="fidelity_trainer", version="1.0", packages=["fidelity_trainer"])
