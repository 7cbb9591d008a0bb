"""What verbs print as commands works when it is typed, by somebody who has an empty home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import functions

TRAINER = """\
import argparse
import os

import hypertune
import joblib
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

parser = argparse.ArgumentParser()
parser.add_argument("--c", type=float, default=1.0)
args = parser.parse_args()
x, y = make_classification(300, random_state=1)
model = LogisticRegression(C=args.c).fit(x[:200], y[:200])
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", model.score(x[200:], y[200:]), 1)
folder = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/")
os.makedirs(folder, exist_ok=True)
joblib.dump(model, os.path.join(folder, "model.joblib"))
"""
SCHEDULE = 'schedules:\n  nightly: {run: cpu, cron: "0 3 * * *", time_zone: Etc/UTC}\n'
ALONE = """\
project: my-project
bucket: gs://my-bucket
trainer: {path: fit.py, module: fit, image: sklearn-1.6}
jobs: {cpu: {machine_type: n1-standard-4, timeout: 600s}}
"""
COMMAND = re.compile(r'^(?:vertexrig .+|eval "\$\(vertexrig .+\)")$', re.MULTILINE)
NUMBER = re.compile(r"-\d+\b|\b\d{9,}\b")
"""What tells two commands of one form apart: `sweep-2-best` from `sweep-best`, and one job's number from another's."""
STARTED = ("vertexrig local up", 'eval "')
"""What is typed first of what was printed: without it the other commands go to Google Cloud."""


class Typist:
    """Types commands, then those that they printed, until no command of a new form is printed.

    Args:
        folder: The folder of the project, below that of the user's home.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.typed, self.forms = folder, dict[str, str](), set[str]()
        path = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.defpath.lstrip(os.pathsep), "/usr/local/bin"])
        self.environment = {
            "PATH": path,
            "HOME": str(folder.parent),
            "LANG": "C.UTF-8",
            "PORT": str(functions.free_port()),
        }
        self.before = self.environment

    def forgets(self) -> None:
        """Begin in a new shell, in which nothing has been typed."""
        self.environment, self.typed, self.forms = self.before, {}, set()

    def types(self, line: str, code: int = 0) -> None:
        """Type a command that ends with this exit code, and then what it printed."""
        waiting = self._run(line, code)
        while waiting:
            following = next((one for one in waiting if one.startswith(STARTED)), waiting[0])
            waiting = [one for one in [*waiting, *self._run(following, 0)] if NUMBER.sub("", one) not in self.forms]

    def _run(self, line: str, code: int) -> list[str]:
        script = line.replace("local up", 'local up --port "$PORT"')
        if line.startswith("eval "):  # what it sets is there for what is typed later
            script += " && env -0 > ../set"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", script],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        printed = done.stdout + done.stderr
        assert done.returncode == code and "Traceback" not in printed, (
            f"$ {line}\n{printed}\nprinted by:\n{self._by(line)}"
        )
        if line.startswith("eval "):
            pairs = (self.folder.parent / "set").read_text().rstrip("\0").split("\0")
            self.environment = dict(pair.split("=", 1) for pair in pairs)
        self.typed[line] = printed
        self.forms.add(NUMBER.sub("", line))
        return COMMAND.findall(printed)

    def _by(self, line: str) -> str:
        return "\n".join(f"$ {one}" for one, printed in self.typed.items() if line in printed.splitlines())


@pytest.mark.whole
def test_a_printed_command_works(tmp_path: Path) -> None:
    """Each command that a verb prints as the next one, or to solve an error, ends with 0 in the shell in which it was printed."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "fit.py").write_text(TRAINER)
    (folder / "requirements.txt").write_text("scikit-learn\njoblib\ncloudml-hypertune\n")
    typist = Typist(folder)
    try:
        typist.types("vertexrig init")
        for line in (
            "rehearse cpu",
            "local up --detach",
            "register cpu",
            "rehearse sweep --trials 4",
            "promote sweep --local",
        ):
            assert f"vertexrig {line}" in typist.typed
        verbs = {line.split()[1] for line in typist.typed}
        assert {"render", "check", "best", "submit", "watch"} <= verbs, verbs
        with (folder / "vertexrig.yaml").open("a") as file:
            file.write(SCHEDULE)
        for line in (
            "submit sweep --set max_trial_count=3", "follow-up sweep --local", "report cpu", "pull cpu", "explain cpu", "jobs",
            "function package", "schedule plan", "schedule apply", "convert build/jobs/cpu.yaml", "function build",
        ):  # fmt: skip
            typist.types(f"vertexrig {line}")
        # without a sweep nothing says which metric counts: the options are printed
        (folder / "vertexrig.yaml").write_text(ALONE)
        typist.forgets()
        typist.types("vertexrig rehearse cpu")
        assert "vertexrig register cpu --metric=accuracy --goal=MAXIMIZE" in typist.typed
        typist.forgets()
        typist.types("vertexrig register cpu", 2)
        assert "vertexrig register cpu" in typist.typed
    finally:
        subprocess.run(
            ["vertexrig", "local", "down"], cwd=folder, env=typist.environment, capture_output=True, timeout=60
        )
