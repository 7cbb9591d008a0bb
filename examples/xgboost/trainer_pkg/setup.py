from setuptools import setup

setup(
    name="boosting",
    version="0.1.0",
    description="Trains boosted trees on scikit-learn's digits with XGBoost.",
    packages=["boosting"],
    python_requires=">=3.10",
    install_requires=["cloudml-hypertune", "scikit-learn"],  # XGBoost is in the container
)
