"""One failing and one passing study per rule on defects in the trainer's source."""

from __future__ import annotations

from tests.vertexrig.checks.cases import Case
from tests.vertexrig.checks.trainer_cases import ARGS, PLAIN, PYTHON, swapped

GUARD = 'if __name__ == "__main__":\n    main()\n'
LOOKUP = 'save(os.environ.get("AIP_MODEL_DIR", "model"))'
CASES = [
    Case("name-undefined", "study", {}, {}, PYTHON, swapped("range(args.epochs)", "rnage(args.epochs)"), PLAIN),
    Case("name-undefined", "study", {}, {}, PYTHON, swapped("import argparse, os", "import argparse"), PLAIN),
    Case("flag-undeclared", "study", {}, {}, PYTHON, swapped("args.epochs", "args.epoch"), PLAIN),
    Case("flag-undeclared", "study", {}, {}, PYTHON, swapped("args.epochs", "args.steps"),
         swapped("args = parser.parse_args()", "args = parser.parse_args()\n    args.steps = 3")),
    Case("module-idle", "study", {}, {}, PYTHON, PLAIN.replace(GUARD, ""), PLAIN),
    Case("module-idle", "study", {}, {}, PYTHON, PLAIN.replace(GUARD, ""), PLAIN.replace(GUARD, "main()\n")),
    Case("arguments-unread", "study", {ARGS: ["--epochs=3"]}, {}, PYTHON, swapped("parse_args()", "parse_args([])"), PLAIN),
    Case("notebook-line", "study", {}, {}, PYTHON, "get_ipython().system('pip install tqdm')\n" + PLAIN,
         "try:\n    get_ipython()\nexcept NameError:\n    pass\n" + PLAIN),
    Case("environment-unset", "study", {}, {}, PYTHON, swapped(LOOKUP, 'save(os.environ["AIP_MODELS_DIR"])'),
         swapped(LOOKUP, 'save(os.environ["AIP_MODEL_DIR"])')),
    Case("environment-unset", "study", {}, {f"{PYTHON}.env": [{"name": "BUCKET", "value": "b"}]}, PYTHON,
         swapped(LOOKUP, 'save(os.environ["BUCKET"], os.environ["AIP_MODEL_DIR"])')),
]  # fmt: skip
