"""Trains a classifier of scikit-learn's digits with PyTorch, in one process or in many that share the work (DDP)."""
