"""Trains a random forest on scikit-learn's digits."""
