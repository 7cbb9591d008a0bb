"""The reference page of the project file, made from the dataclasses of `vertexrig.project.model`.

`python -m tools.project_file_page > docs/project-file.md` writes it; a test holds that the page is up to date.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import Any

from vertexrig.project.keys import default_text, meaning, places, type_text
from vertexrig.project.model import Job, Project, Role, Sweep
from vertexrig.project.study import ParameterSpec, StudyParameter
from vertexrig.project.triggered import Budget, RunLimits
from vertexrig.schema import typed

LIKE: dict[type, type] = {Role: Job, Sweep: Job, RunLimits: Budget, ParameterSpec: StudyParameter}
"""Mappings and those whose rows they repeat, which are named only."""

_INTRODUCTION = """\
# The project file

`vertexrig.yaml` describes the jobs, sweeps and schedules of one project. Every verb looks for it in the working directory
and then in the folders above; `--file` names another file. Fields have the names of the Vertex AI API, in snake_case. A key
that is not listed here is an error. The message names the file, the line and the most similar key. All errors of a file are reported together.

```yaml
project: ${PROJECT:-my-project}
region: us-central1
bucket: gs://my-project-vertexrig
trainer: {path: trainer_pkg, module: trainer.task, image: tf-2.17}
jobs:
  cpu: {topology: cpu, machine_type: n1-standard-4, args: {epochs: 20}, timeout: 3600s}
  multi-worker:
    topology: multi-worker
    machine_type: n1-standard-8
    accelerator_type: NVIDIA_TESLA_T4
    accelerator_count: 1
    worker: {replica_count: 2}
sweeps:
  sweep:
    job: cpu
    max_trial_count: 20
    parallel_trial_count: 2
    study:
      metrics: {accuracy: MAXIMIZE}
      parameters:
        learning_rate: {double_value_spec: {min_value: 0.001, max_value: 1}, scale_type: UNIT_LOG_SCALE}
```

Relative paths start from the folder of the project file. A key without a value (null) has its default.

## Values from the environment

- `${NAME}` in a value is replaced by the environment variable. It is an error if the variable is not set or empty.
- `${NAME:-default}` is replaced by the default if the variable is not set or empty.
- `$${` is a literal `${`. Keys are never replaced.
- Messages, and the results of `check`, `diff`, `explain`, `doctor` and `report`, show `${NAME}` for the value. The rendered
  YAML has the value. A value of fewer than 8 characters is replaced only where it is the whole text.
- The commands that `render`, `rehearse` and `image` print have the values. Commands of vertexrig set the variables that replaced a default:
  `IMAGE=build vertexrig image cpu --push`.
  Variables with a secret's name are left out.

The result has the type of its key: `max_trial_count: ${TRIALS:-20}` is a whole number. For a key that takes text, `20` stays text.

## Values from the command line

`--set KEY=VALUE` overrides one value and may be repeated. The value has the type of its key. The key is a key of the job
or sweep that the command names, or else a path from the top of the file. Write dots between nested keys, and count the items of a list from 0:

```sh
vertexrig render cpu --set machine_type=n1-standard-8 --set args.epochs=3
vertexrig render sweep --set jobs.cpu.timeout=600s --set max_trial_count=5
```

`--set KEY-` removes a key of the file, as in kubectl. `--set args.NAME` without a value passes the flag alone, `--NAME`;
`--set args.NAME=` passes an empty text, `--NAME=`.

```sh
vertexrig render cpu --no-check --set args.verbose --set timeout-
```

## Environments: one file for dev and prod

Each entry of `environments` has keys of the project file. `--env NAME`, or the variable `VERTEXRIG_ENV`, merges them over the file:

<!-- file: team.yaml -->
```yaml
region: us-central1
trainer: {path: trainer_pkg, image: tf-2.17}
jobs:
  cpu: {machine_type: n1-standard-4, args: {epochs: 1}, timeout: 600s}
schedules:
  nightly: {run: cpu, cron: "0 3 * * *"}
environments:
  dev:
    project: my-dev
    bucket: gs://my-dev-vertexrig
    schedules: null                 # no schedule runs in dev
  prod:
    project: my-prod
    bucket: gs://my-prod-vertexrig
    jobs: {cpu: {machine_type: n1-standard-8, args: {epochs: 20}}}
    trigger: {budget: {usd_per_day: 200}}
```

```console
$ vertexrig render cpu --no-check --file team.yaml --env prod
...
gcloud ai custom-jobs create --project=my-prod --region=us-central1 --display-name=cpu --config=build/jobs/prod/cpu.yaml
$ vertexrig check --file team.yaml     # every environment
...
```

- A mapping is merged key by key. A list or any other value replaces the one of the file. Null removes a key of the file. `${NAME}` is replaced only in
  the environment that is chosen, and `--set` comes last.
- Two environments with the same bucket, the same function in the same project, or the same `trigger.uri` are refused, whichever of them you choose. The
  function is `trigger.function`. Environments in one Google Cloud project need a bucket and a function each.
- Verbs that work with Google Cloud (`submit`, `jobs`, `watch`, `register`, `function`, `schedule`, `doctor` and others) refuse a file with
  environments until you choose one. Verbs for this machine, such as `render`, `explain` and `rehearse`, then use the file without its
  environments, if it has a `project`. Leave `project` out of it to make every verb ask.
- `check` without `--env` tests the file, if it has a `project`, and each environment. A finding that the file does not have names its environments.
- `function build`, `function serve` and `function deploy` build the function with the name of the environment, which the function then serves: no
  variable of the function changes that. The digest of a deployed function covers only its own environment.
- `diff --env prod` compares that environment with what it was. `function deploy --run --env prod` writes `environments.prod.trigger.uri`.

## Fields of the API that are not listed: `spec`

`spec` of a job takes any field of the API's CustomJobSpec; `spec` of a sweep takes any field of HyperparameterTuningJob. Names may be in camelCase
or snake_case. vertexrig merges `spec` into the rendered YAML: mappings key by key, and lists of mappings item by item. Any other value
replaces the rendered one; null removes the field.

```yaml
project: my-project
bucket: gs://my-project-vertexrig
jobs:
  cpu:
    machine_type: n1-standard-4
    spec:
      enableWebAccess: true
      workerPoolSpecs:
      - diskSpec: {bootDiskSizeGb: 200} # the first pool
```

## Findings to leave out: `silence`

`silence` leaves out findings of a rule and records the reason. It applies to the whole file, a job, or a sweep; a sweep also leaves out the
findings that its job leaves out. `vertexrig check --list-rules` lists the ids of rules. An unknown id or an empty reason is an error.

```yaml
project: my-project
bucket: gs://my-project-vertexrig
jobs:
  cpu:
    machine_type: n1-standard-4
    silence:
      image-availability: the image is mirrored until we have moved to a custom one
```

## Keys

In the column "default", "required" means that you must set the key, and an empty cell means that the rendered job does not have it. A scalar is
text, a number or a boolean. A bare `y` or `n` is refused as a scalar: write it in quotes, or write `true` or `false`. `Job.worker` is the key
`worker` of a [Job](#job). `vertexrig keys` prints the same list, also as JSON.
"""


def page() -> str:
    """Return the whole page, as Markdown."""
    sections = [_section(cls, where) for cls, where in places().items()]
    return f"{_INTRODUCTION}\n" + "\n".join(sections)


def _section(cls: type, where: list[str]) -> str:
    title = "The file itself" if cls is Project else cls.__name__
    lines = [f"### {title}", "", inspect.cleandoc(cls.__doc__ or "")]
    if where:
        lines += ["", "Place: " + ", ".join(f"`{place}`" for place in where) + "."]
    rows = {item.name: _row(item, cls) for item in dataclasses.fields(cls)}
    if cls in LIKE:
        other = LIKE[cls]
        there = {_row(item, other) for item in dataclasses.fields(other)}
        names = ", ".join(f"`{name}`" for name, row in rows.items() if row in there)
        lines += ["", f"As in [{other.__name__}](#{other.__name__.lower()}): {names}."]
        rows = {name: row for name, row in rows.items() if row not in there}
    if rows:
        lines += ["", "| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows.values()]
    return "\n".join(lines) + "\n"


def _row(item: dataclasses.Field[Any], cls: type) -> str:
    cells = (f"`{item.name}`", type_text(typed.hints(cls)[item.name]), default_text(item), meaning(item))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(page())
