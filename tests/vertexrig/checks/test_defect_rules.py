"""Slips that only look like some: what the rules must leave alone, and what is a warning."""

from __future__ import annotations

import pytest

from tests.support.packages import trainer_with
from tests.vertexrig.checks.cases import context, document, found
from tests.vertexrig.checks.job_bases import TRAINER_STUDY as STUDY
from tests.vertexrig.checks.trainer_cases import PLAIN, swapped
from vertexrig.checks import defects

PARSED = "args = parser.parse_args()"


def rules_of(source: str) -> dict[str, list[str]]:
    """The severities of what is found, by rule."""
    problems = found(defects.RULES, document(STUDY), context(trainer_with(source)))
    return {rule: [severity for severity, _, _ in items] for rule, items in problems.items()}


@pytest.mark.parametrize(
    "changed",
    [
        f"{PARSED}\n    args.steps = args.epochs\n    print(args.steps)",
        f"{PARSED}\n    setattr(args, 'steps', 3)\n    print(args.steps)",
        f"{PARSED}\n    vars(args).update(steps=3)\n    print(args.steps)",
        f"{PARSED}\n    print(args.steps if hasattr(args, 'steps') else 3)",
        f"parser.set_defaults(steps=3)\n    {PARSED}\n    print(args.steps)",
        f"{PARSED}\n    args = Settings(args)\n    print(args.steps)",
        f"{PARSED}\n    PARSERS['run'].parse_args().steps",
        f"parser.add_argument('-n', '--number-of-steps', dest='steps')\n    {PARSED}\n    print(args.steps)",
    ],
)
def test_an_attribute_that_something_makes_is_left_alone(changed: str) -> None:
    """Attributes by assignment, setattr, vars, set_defaults, dest, and of names that hold something else, too."""
    source = "from settings import Settings, PARSERS\n" + swapped(PARSED, changed)
    assert rules_of(source) == {}


@pytest.mark.parametrize(
    "source",
    [
        swapped(PARSED, "args, rest = parser.parse_known_args()\n    print(args.steps)"),
        swapped(PARSED, "args = parser.parse_known_args()[0]\n    print(args.steps)"),
        PLAIN.replace("def main():", "def train(options):\n    print(options.steps)\n\ndef main():").replace(
            PARSED, f"{PARSED}\n    train(args)"
        ),
        PLAIN.replace("    for epoch", "    return args\n\ndef main():\n    args = flags()\n    print(args.steps)\n    for epoch")
        .replace("def main():", "def flags():", 1),
    ],
)  # fmt: skip
def test_parsed_flags_are_followed(source: str) -> None:
    """Through parse_known_args, a function that returns them, and one that is given them."""
    assert rules_of(source) == {"flag-undeclared": ["error"]}


def test_what_only_some_runs_come_to_is_a_warning() -> None:
    """A name or attribute behind a branch ends some runs only."""
    source = swapped(PARSED, f"{PARSED}\n    if args.epochs > 3:\n        print(args.steps, steps)")
    assert rules_of(source) == {"flag-undeclared": ["warning"], "name-undefined": ["warning"]}


def test_a_guard_for_another_name_is_a_branch() -> None:
    """`__name__ == "__channelexec__"`, as execnet has it, holds where somebody else starts the module."""
    source = PLAIN + 'if __name__ == "__channelexec__":\n    main(channel)\n'
    assert rules_of(source) == {"name-undefined": ["warning"]}


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nfrom trainer import work\ndef unused(): pass\n",
        "import click\n@click.command()\ndef main(): pass\nmain()\n",
        "def main(): pass\nwith open('x') as f: main()\n",
        "def main(): pass\nfor _ in range(3): main()\n",
        "import runpy\ndef helper(): pass\nrunpy.run_module('trainer.work')\n",
    ],
)
def test_a_module_that_runs_something_is_left_alone(source: str) -> None:
    """Work may begin in a loop, a with statement, a call, or in a module of the trainer that is imported."""
    problems = found(defects.RULES, document(STUDY), context(trainer_with(source, work="print('works')\n")))
    assert problems == {}


def test_a_console_script_may_call_the_module() -> None:
    """`command: [my-train]` starts a function of the module, which only defines it."""
    trainer = trainer_with("def main(): pass\n")
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1}
    for command, expected in ((["my-train"], set()), (["python", "-m", "trainer.task"], {"module-idle"})):
        job = {"workerPoolSpecs": [{**pool, "containerSpec": {"imageUri": "gcr.io/p/i:v1", "command": command}}]}
        assert set(found(defects.RULES, document(job), context(trainer))) == expected


def test_the_wrong_module_does_nothing() -> None:
    """python_module: trainer.model, which task.py imports and which only defines things, is found."""
    source = "import logging\nLOG = logging.getLogger()\ndef build(): pass\n"
    assert rules_of(source) == {"module-idle": ["error"]}


@pytest.mark.parametrize(
    "lookup",
    [
        "os.environ.get('BUCKET')", "os.getenv('BUCKET')", "os.environ['CLUSTER_SPEC']", "os.environ['HOME']",
        "os.environ['BUCKET'] if 'BUCKET' in os.environ else ''",
    ],
)  # fmt: skip
def test_a_variable_that_is_asked_for_or_set_is_left_alone(lookup: str) -> None:
    """What the service or any container sets, and what the trainer does without, needs no env."""
    assert rules_of(swapped(PARSED, f"{PARSED}\n    print({lookup})")) == {}


def test_a_variable_of_the_trainers_own_is_a_warning() -> None:
    """An image may set it, so that the job can still run."""
    source = swapped(PARSED, f"{PARSED}\n    print(os.environ['BUCKET'])")
    assert rules_of(source) == {"environment-unset": ["warning"]}


def test_a_variable_of_a_managed_dataset_is_a_warning() -> None:
    """A custom job has none of them: a training pipeline with a dataset sets them."""
    source = swapped(PARSED, f"{PARSED}\n    print(os.environ['AIP_TRAINING_DATA_URI'])")
    assert rules_of(source) == {"environment-unset": ["warning"]}


def test_only_a_name_that_is_like_it_is_proposed() -> None:
    """`rnage` may be `range`; `project_id` is not `object`, nor `location` a part of `__annotations__`."""
    source = PLAIN + "print(rnage, project_id, location)\n"
    problems = found(defects.RULES, document(STUDY), context(trainer_with(source)))["name-undefined"]
    hints = ["Did you mean 'range'" in message or "Did you mean" not in message for _, _, message in problems]
    assert hints == [True] * 3 and sum("Did you mean" in message for _, _, message in problems) == 1


def test_a_helper_that_is_a_program_too_is_left_alone() -> None:
    """Flags and names in the `run` of a helper, which only runs when the helper does, are not of this trainer."""
    helper = (
        "import argparse\ndef prepare(): pass\ndef start():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--source')\n    args = parser.parse_args()\n    print(args.source, nowhere)\n"
        "if __name__ == '__main__':\n    start()\n"
    )
    source = PLAIN.replace("import argparse", "from trainer.work import prepare\nimport argparse", 1)
    problems = found(defects.RULES, document(STUDY), context(trainer_with(source, work=helper)))
    assert problems == {}
