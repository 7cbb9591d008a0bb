"""The commands that make a finished job again: the YAML it was created from, and the gcloud command that takes it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from vertexrig import yamltext
from vertexrig.checks import secrets
from vertexrig.cloud.vertex import TUNING, RemoteJob
from vertexrig.results.trials import TrialResult
from vertexrig.spec.labels import users
from vertexrig.studies.cost import document

_END = "END_OF_JOB"
_CUT = "# a value with … in it holds a secret, which is not shown in whole: write it in before the job is created\n"


@dataclass(frozen=True)
class Reproduction:
    """How to make a job again.

    Args:
        yaml: What gcloud takes with `--config`; secrets in plain text are cut, which a comment at its top says.
        create: The gcloud command, which reads `file`.
        file: The name of the YAML's file in that command.
        vertexrig: The command of this program that runs the same from the project file.
    """

    yaml: str
    create: str
    file: str
    vertexrig: str

    @property
    def script(self) -> str:
        """Both in one piece for a POSIX shell."""
        end = _END
        while end in self.yaml.splitlines():  # a text of several lines in args may hold it
            end += "_"
        return f"cat > {shlex.quote(self.file)} <<'{end}'\n{self.yaml}{end}\n{self.create}\n"


def reproduction(job: RemoteJob, *, project: str, again: str) -> Reproduction:
    """Return how to make a job again.

    The package, the arguments and the search space are those of the job; what the project file says today may differ.

    Args:
        project: Its Google Cloud project id; a resource name has the project's number, which gcloud refuses.
        again: The command of this program that runs the same from the project file.
    """
    read = document(job)
    sweep = job.collection == TUNING
    file = f"{job.id or 'job'}.yaml"
    parts = job.name.split("/")
    # The description of a job in a file may have no resource name, and so no region.
    location = [f"--project={project}", *([f"--region={parts[3]}"] if len(parts) > 3 else [])]
    words = ["gcloud", "ai", "hp-tuning-jobs" if sweep else "custom-jobs", "create", *location]
    words += [f"--display-name={job.display_name}", f"--config={file}"]
    labels = users(job.labels)
    words += [f"--labels={','.join(f'{key}={value}' for key, value in sorted(labels.items()))}"] if labels else []
    key_name = (job.data.get("encryptionSpec") or {}).get("kmsKeyName")
    words += [f"--kms-key={key_name}"] if key_name else []
    safe = secrets.without(read)
    text = ("" if safe is read else _CUT) + yamltext.dump(safe.data)
    return Reproduction(text, shlex.join(words), file, again)


def flags(trial: TrialResult) -> str:
    """Return a trial's parameters as arguments of the trainer, quoted for a shell."""
    return shlex.join(f"--{name}={value}" for name, value in trial.parameters.items())
