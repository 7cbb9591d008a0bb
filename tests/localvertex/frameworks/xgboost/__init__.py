"""Stands for a framework where its import alone matters: a tenth of the time of the real one."""

from numpy import random as random
