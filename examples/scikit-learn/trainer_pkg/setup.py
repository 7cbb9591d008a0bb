from setuptools import setup

setup(
    name="forest",
    version="0.1.0",
    description="Trains a random forest on scikit-learn's digits.",
    packages=["forest"],
    python_requires=">=3.10",
    install_requires=["cloudml-hypertune"],  # scikit-learn and joblib are in the container
)
