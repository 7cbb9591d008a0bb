"""Attacks, each as a test that must fail."""
