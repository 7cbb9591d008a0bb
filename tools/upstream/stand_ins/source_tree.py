"""A pytest plugin: the tests of python-aiplatform under the name that they have in Google's own source tree."""

import importlib
import sys

for name in ("tests", "tests.unit", "tests.unit.aiplatform", "tests.unit.aiplatform.constants"):
    sys.modules[f"google.cloud.aiplatform.{name}"] = importlib.import_module(name)
