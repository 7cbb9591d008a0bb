"""A stand-in for torchvision where its data set cannot be downloaded: scikit-learn's digits in the form of MNIST."""

from torchvision import datasets, transforms

__all__ = ["datasets", "transforms"]
