"""Trains boosted trees on scikit-learn's digits with XGBoost."""
