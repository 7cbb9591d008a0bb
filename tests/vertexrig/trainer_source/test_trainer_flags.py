"""Trainers' command lines as the users of each flag library write them: what the checks then say of a job."""

from __future__ import annotations

import runpy
import sys
from contextlib import nullcontext
from datetime import date
from pathlib import Path

import pytest

from vertexrig import checks, spec
from vertexrig.catalog import load
from vertexrig.finding import Severity
from vertexrig.package.cache import decoder, encode
from vertexrig.trainer_source.reader import read
from vertexrig.trainer_source.trainer_model import TrainerSource

FLAGS = Path(__file__).parents[2] / "trainers" / "flags"
RULES = {
    "argument-unknown", "argument-required", "argument-parse", "flag-takes-no-value", "boolean-flag", "sub-command",
    "hydra-override", "flags-unread", "trainer-unreadable", "trainer-module", "arg-glued",
}  # fmt: skip


def job(args: list[str], module: str = "") -> spec.Document:
    program = {"executorImageUri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest", "args": args}
    program |= {"packageUris": ["gs://b/p.tar.gz"], "pythonModule": module}
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "pythonPackageSpec": program}
    return spec.from_data({"workerPoolSpecs": [pool]})


def said(name: str, args: str) -> dict[str, Severity]:
    return findings(FLAGS / f"{name}.py", args)


def findings(file: Path, args: str) -> dict[str, Severity]:
    trainer = read(file)
    found = checks.check(job(args.split()), checks.Context(load(), today=date(2026, 7, 1), trainer=trainer))
    return {f"{one.id}: {one.message}": one.severity for one in found if one.id in RULES}


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("argparse_commands", "train --data=x --epochs=2 --units=8"),
        ("argparse_commands", "--seed=1 fit --data=x --epochs 2 --units=8 -vv -q -n5"),
        ("argparse_commands", "--seed 1 export --data=x --format=h5 -vvq -qn 5"),
        ("argparse_commands", "tools clean --force"),
        ("click_commands", "train-model --epochs=2"),
        ("click_commands", "-vv save --format=h5"),
        ("click_commands", "data prepare --source=x"),
        ("typer_commands", "train --epochs=2"),
        ("typer_commands", "--verbose save --format=h5"),
        ("typer_commands", "tools clean --force"),
        ("transformers_fields", "--model_name=x --max-length=8 --no_shuffle --splits a b"),
    ],
)
def test_what_the_program_takes_is_no_finding(name: str, args: str) -> None:
    """Only the chosen command's flags are required, `-vv` counts, and each library's own spellings are known."""
    assert said(name, args) == {}


def test_a_short_flag_and_its_value_may_be_one_word(tmp_path: Path) -> None:
    """`-n 5` in one argument is -n and its value, as argparse reads it: there is no error."""
    (tmp_path / "task.py").write_text(
        'import argparse\np = argparse.ArgumentParser()\np.add_argument("-n", "--num", type=int, required=True)\np.parse_args()\n'
    )
    context = checks.Context(load(), today=date(2026, 7, 1), trainer=read(tmp_path / "task.py"))
    assert RULES.isdisjoint(one.id for one in checks.check(job(["-n 5"]), context))
    found = [one.id for one in checks.check(job(["-m 5", "-n=5"]), context) if one.id in RULES]
    assert found.count("arg-glued") == 1, found


def test_a_short_flags_value_may_hold_an_equals_sign(tmp_path: Path) -> None:
    """`-Dlr=0.1` is -D with `lr=0.1`, in one word, with a blank or in two, as argparse reads it; -n ends a flag of many values."""
    source = "p.add_argument('-D', action='append', required=True)\np.add_argument('--xs', nargs='*', type=int)\np.add_argument('-n')\n"
    (tmp_path / "task.py").write_text(f"import argparse\np = argparse.ArgumentParser()\n{source}p.parse_args()\n")
    context = checks.Context(load(), today=date(2026, 7, 1), trainer=read(tmp_path / "task.py"))
    for args in (["-Dlr=0.1"], ["-D lr=0.1"], ["-D", "lr=0.1"], ["-D=x", "--xs", "1", "-n 5"], ["--xs", "1", "-Dlr=0"]):
        assert RULES.isdisjoint(one.id for one in checks.check(job(args), context)), args


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("argparse_commands", "train --data=x --epochs=2", "argument-required: the trainer requires --units"),
        ("argparse_commands", "export --data=x --format=h5 --epochs=2", "argument-unknown: the trainer has no flag --epochs"),
        ("argparse_commands", "export --data=x --format=onnx", "argument-parse: --format is 'onnx'"),
        ("argparse_commands", "trian --data=x", "sub-command: the trainer has no sub-command 'trian'"),
        ("argparse_commands", "--seed=1", "sub-command: the trainer needs a sub-command"),
        ("argparse_commands", "tools clean --data=x", "argument-unknown: the trainer has no flag --data"),
        ("argparse_commands", "train --data=x --epochs=2 --units=8 -nx", "argument-parse: -n is 'x'"),
        ("click_commands", "save", "argument-required: the trainer requires --format"),
        ("click_commands", "save --format=h5 --epochs=2", "argument-unknown: the trainer has no flag --epochs"),
        ("typer_commands", "train", "argument-required: the trainer requires --epochs"),
        ("transformers_fields", "--max_length=8", "argument-required: the trainer requires --model_name"),
        ("transformers_fields", "--model_name=x --lr=1", "argument-unknown: the trainer has no flag --lr"),
        ("pydantic_environment", "--epochs=1", "argument-unknown: the trainer reads no arguments"),
    ],
)  # fmt: skip
def test_what_the_program_refuses_is_found(name: str, args: str, words: str) -> None:
    """One finding, with the right words."""
    found = said(name, args)
    assert len(found) == 1 and next(iter(found)).startswith(words), found


@pytest.mark.parametrize("file", sorted(FLAGS.glob("*.py")), ids=lambda file: file.stem)
def test_what_was_read_is_kept_whole(file: Path) -> None:
    """The cache gives back what the reader found, sub-commands included."""
    found = read(file)
    assert found.problems == () and decoder(TrainerSource)(encode(found)) == found


@pytest.mark.parametrize(
    "code",
    [
        "def mk():\n  return mk()\np = mk()\nargparse.ArgumentParser(parents=[p])\n",
        "def f(p):\n" + "  f(p)\n" * 8 + "  p.add_argument('--x')\nf(f)\n",
        "class A(B, B): x: int\nclass B(A, A): y: A\nimport trl\ntrl.TrlParser(A)\n",
        "import trl\nclass A:\n  a: 'A'\n  b: 'list[A]'\n  c: 'A | None'\ntrl.TrlParser(A)\n",
        "import click\n@g.command()\ndef g(): pass\n@g.group()\ndef h(): pass\nh.add_command(h)\n",
        "import typer\na = typer.Typer()\na.add_typer(a, name=1)\n@a.command(*x)\ndef f(): pass\n",
    ],
)
def test_code_that_leads_in_circles_is_given_up(tmp_path: Path, code: str) -> None:
    """Functions, classes and groups that refer to themselves end the search, not the reader."""
    (tmp_path / "task.py").write_text(
        f"import argparse\nparser = argparse.ArgumentParser()\nsub = parser.add_subparsers()\n{code}"
    )
    assert read(tmp_path / "task.py").problems == ()


@pytest.mark.parametrize("library", ["typer", "argparse"])
def test_the_command_line_of_an_imported_module_is_not_the_trainers(tmp_path: Path, library: str) -> None:
    """What a module declares behind its own main guard, or in a function that only the guard calls, does not run when it is
    imported: its required flags are not asked for.
    """
    run = {
        "typer": "import typer\ndef prepare(raw: str):\n    pass\nif __name__ == '__main__':\n    typer.run(prepare)\n",
        "argparse": "import argparse\ndef main():\n    p = argparse.ArgumentParser()\n    p.add_argument('--raw', required=True)\n"
        "if __name__ == '__main__':\n    main()\n",
    }
    (tmp_path / "data.py").write_text(run[library] + "rows = 1\n")
    task = "import argparse\nfrom data import rows\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"
    (tmp_path / "task.py").write_text(task)
    assert findings(tmp_path / "task.py", "--lr=1") == {}
    assert [name.partition(":")[0] for name in findings(tmp_path / "data.py", "")] == ["argument-required"]


@pytest.mark.parametrize("place", ["Typer", "callback"])
def test_a_typer_app_that_runs_without_a_command_needs_none(tmp_path: Path, place: str) -> None:
    """`invoke_without_command` of the app or of its callback: the callback is the program then."""
    given = {"Typer": "", "callback": "", place: "invoke_without_command=True"}
    (tmp_path / "train.py").write_text(
        f"import typer\napp = typer.Typer({given['Typer']})\n@app.callback({given['callback']})\n"
        "def main(epochs: int = 3):\n    print(epochs)\n@app.command()\ndef clean():\n    pass\n"
        "@app.command()\ndef show():\n    pass\nif __name__ == '__main__':\n    app()\n"
    )
    assert findings(tmp_path / "train.py", "--epochs=5") == {}


def test_typers_defaults_are_read_wherever_they_are_given(tmp_path: Path) -> None:
    """A default of Option(...) may be its first argument, a keyword or a factory; in Annotated it is the parameter's own."""
    parameters = (
        "a: int = typer.Option(1), b: int = typer.Option(default=2), c: list[str] = typer.Option(default_factory=list), "
        "d: Annotated[int, typer.Option('--dd')] = 4, e: int = typer.Option(...), f: Literal['x', 'y'] = 'x'"
    )
    source = (
        f"import typer\nfrom typing import Annotated, Literal\ndef main({parameters}):\n    pass\ntyper.run(main)\n"
    )
    (tmp_path / "task.py").write_text(source)
    flags = {flag.dest: flag for flag in read(tmp_path / "task.py").flags}
    assert [name for name, flag in flags.items() if flag.required] == ["e"]
    assert flags["d"].names == ("--dd",) and flags["c"].nargs == "*" and flags["f"].choices == ("x", "y")


_ARGPARSE = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
_PARSE = "parser.parse_args()\n"
_ABSL = "from absl import app, flags\nflags.DEFINE_bool('amp', False, '')\nflags.DEFINE_enum('opt', 'sgd', ['sgd'], '', case_sensitive=False)\n"
_RUN = "if __name__ == '__main__':\n    app.run(main)\n"
_CLICK = "import click\nfrom click_option_group import optgroup\n@click.command()\n@optgroup.group('Training')\n"
_TYPER = "import typer\napp = typer.Typer({})\n@app.command()\ndef main({}):\n    pass\napp()\n"
_FIELDS = "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n@dataclass\nclass Options:\n    lr: float = 0.1\n"
TAKEN = {
    "the off switch of argparse": (_ARGPARSE + "parser.add_argument('--amp', '-a', action=argparse.BooleanOptionalAction)\n" + _PARSE, "--no-amp"),
    "a choice after a conversion": (_ARGPARSE + "parser.add_argument('--opt', type=str.lower, choices=['adam'])\n" + _PARSE, "--opt=Adam"),
    "a bool among choices": (
        "def yes(text):\n    return text == 'true'\n" + _ARGPARSE + "parser.add_argument('--amp', type=yes, choices=[True, False])\n" + _PARSE,
        "--amp=true",
    ),
    "a choice of click in any case": (
        "import click\n@click.command()\n@click.option('--opt', type=click.Choice(['adam'], case_sensitive=False))\ndef main(opt):\n    pass\n", "--opt=ADAM",
    ),
    "a choice of absl in any case": (_ABSL + "def main(_):\n    pass\n" + _RUN, "--opt=SGD"),
    "a switch of absl alone": (_ABSL + "def main(_):\n    pass\n" + _RUN, "--amp"),
    "absl's own flags": (_ABSL + "def main(_):\n    pass\n" + _RUN, "--alsologtostderr --verbosity=1 -v 1 --log_dir=/tmp --norun_with_pdb --undefok=x"),
    "a group of click options": (_CLICK + "@optgroup.option('--lr', type=float)\ndef main(lr):\n    pass\n", "--lr=1"),
    "typer's context": (_TYPER.format("", "ctx: typer.Context, lr: float = 1.0"), "--lr=1"),
    "typer's two spellings": (_TYPER.format("", "ok: bool = typer.Option(True, '--accept/--reject')"), "--reject"),
}  # fmt: skip


@pytest.mark.parametrize("what", TAKEN)
def test_what_each_library_takes_beyond_its_plain_flags_is_no_finding(tmp_path: Path, what: str) -> None:
    """Spellings, conversions and flags that a parser has of itself."""
    source, args = TAKEN[what]
    (tmp_path / "task.py").write_text(source)
    assert findings(tmp_path / "task.py", args) == {}
    misspelt = findings(tmp_path / "task.py", f"{args} --unitz=8")
    assert len(misspelt) == 1 and next(iter(misspelt)).startswith("argument-unknown: "), misspelt


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("", ["argument-required"]),
        ("--flagfile=f.txt", []),
        ("--data=x --undefok=foo,bar --foo=1 -bar 2 --nofoo", []),
        ("--data=x --undefok=foo --bar=1", ["argument-unknown"]),
    ],
)
def test_what_absl_is_told_of_its_flags_counts(tmp_path: Path, args: str, said: list[str]) -> None:
    """A file may give the flags that are required, and those that --undefok names may be unknown."""
    mark = "flags.DEFINE_string('data', None, '')\nflags.mark_flag_as_required('data')\ndef main(_):\n    pass\n"
    (tmp_path / "task.py").write_text(_ABSL + mark + _RUN)
    assert [name.partition(":")[0] for name in findings(tmp_path / "task.py", args)] == said


TOLERATED = {
    "typer": (_TYPER.format("", "lr: float = 1.0").replace("command()", "command(context_settings=dict(ignore_unknown_options=True))"), "--lr=1"),
    "transformers": (_FIELDS + "p = HfArgumentParser(Options)\np.parse_args_into_dataclasses(return_remaining_strings=True)\n", "--lr=1"),
}  # fmt: skip


@pytest.mark.parametrize("library", TOLERATED)
def test_a_parser_that_leaves_over_what_it_does_not_know_does_not_stop(tmp_path: Path, library: str) -> None:
    """A warning that the flag has no effect, no error."""
    source, args = TOLERATED[library]
    (tmp_path / "task.py").write_text(source)
    found = findings(tmp_path / "task.py", f"{args} --unitz=8")
    assert list(found.values()) == [Severity.WARNING] and "has no effect" in next(iter(found))


HANDED = {
    "and bound anew": "import deepspeed\nparser = deepspeed.add_config_arguments(parser)\n",
    "to a class": "import pytorch_lightning as pl\nparser = pl.Trainer.add_argparse_args(parser)\n",
    "in a function": "import lib\ndef add_args(parser):\n    lib.add(parser)\nadd_args(parser)\n",
    "to a function of the same name": "import lib\ndef add_args(parser):\n    lib.add_args(parser)\nadd_args(parser)\n",
    "in a static method": "import lib\nclass Model:\n    @staticmethod\n    def add(p):\n        return lib.more(p)\nModel.add(parser)\n",
    "as an attribute": "import lib\nclass Program:\n    def __init__(self):\n        self.parser = argparse.ArgumentParser()\n        lib.add(self.parser)\nProgram()\n",
    "by name": "import lib\nlib.add(parser=parser)\n",
    "from an own function": "import lib\ndef make():\n    return argparse.ArgumentParser()\nmade = make()\nlib.add(made)\n",
    "by a decorator of another package": "import fancy\n@fancy.option('--x')\ndef main(x):\n    pass\n",
}  # fmt: skip


@pytest.mark.parametrize("how", HANDED)
def test_a_parser_that_is_handed_to_another_package_may_get_flags_there(tmp_path: Path, how: str) -> None:
    """One line of severity info, whichever way it is handed on, and no flag is called unknown."""
    (tmp_path / "task.py").write_text(_ARGPARSE + HANDED[how] + _PARSE)
    found = findings(tmp_path / "task.py", "--lr=1 --deepspeed")
    assert list(found.values()) == [Severity.INFO] and next(iter(found)).startswith("flags-unread: "), found


def test_a_parser_that_stays_in_the_trainer_leaves_nothing_open(tmp_path: Path) -> None:
    """Handed to the trainer's own functions, of another module too, and to what only completes words, it has the flags that are written."""
    (tmp_path / "more.py").write_text("def add(parser):\n    parser.add_argument('--units')\n")
    calls = "import more, argcomplete\ndef mine(parser):\n    more.add(parser=parser)\nmine(parser)\nargcomplete.autocomplete(parser)\n"
    (tmp_path / "task.py").write_text(_ARGPARSE + calls + _PARSE)
    assert findings(tmp_path / "task.py", "--lr=1 --units=2") == {}
    assert [name.partition(":")[0] for name in findings(tmp_path / "task.py", "--unitz=2")] == ["argument-unknown"]


CONFIG = """\
import argparse, dataclasses
from dataclasses import dataclass, field, fields

@dataclass
class Base:
    seed: int = 0

@dataclass
class Config(Base):
    num_units: int = 64
    rate: float = 0.1
    made: str = field(init=False, default="")

parser = argparse.ArgumentParser()
"""
LOOPS = {
    "fields": 'for f in fields(Config):\n    parser.add_argument(f"--{f.name}", type=f.type, default=f.default)\n',
    "an instance": 'start = Config()\nfor f in dataclasses.fields(start):\n    parser.add_argument("--" + f.name, type=type(getattr(start, f.name)))\n',
    "branches": """\
for f in fields(Config):
    if f.type is int:
        parser.add_argument(f"--{f.name}", type=int)
    else:
        parser.add_argument(f"--{f.name}", type=float)
""",
    "annotations": "class Plain:\n    num_units: int = 1\n    made: str\nfor name, kind in Plain.__annotations__.items():\n"
    '    parser.add_argument(f"--{name}", type=kind)\n',
    "a mapping": 'for name, value in {"num_units": 64, "made": ""}.items():\n    parser.add_argument(f"--{name}", type=type(value))\n',
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("arg", "rule"),
    [("--num_units=8", ""), ("--made=1", ""), ("--num-units=8", "argument-unknown"), ("--units=8", "argument-unknown")],
)
def test_flags_of_a_loop_over_fields_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str, arg: str, rule: str
) -> None:
    """Each field of a class, or key of a mapping, that a loop gives argparse is a flag, and argparse itself says the same."""
    file = tmp_path / "task.py"
    file.write_text(f"{CONFIG}{LOOPS[loop]}parser.parse_args()\n")
    assert [one.split(":")[0] for one in findings(file, arg)] == ([rule] if rule else [])
    monkeypatch.setattr(sys, "argv", ["task.py", arg])
    with pytest.raises(SystemExit) if rule else nullcontext():
        runpy.run_path(str(file))


def test_a_flag_of_a_loop_has_the_type_of_its_field(tmp_path: Path) -> None:
    """`type=f.type` refuses what the field's type does; behind a branch nothing is said of it."""
    file = tmp_path / "task.py"
    file.write_text(f"{CONFIG}{LOOPS['fields']}parser.parse_args()\n")
    assert [one.split(":")[0] for one in findings(file, "--num_units=8.5")] == ["argument-parse"]
    assert findings(file, "--rate=8.5") == {}
    file.write_text(f"{CONFIG}{LOOPS['branches']}parser.parse_args()\n")
    assert findings(file, "--num_units=8.5") == {}


@pytest.mark.parametrize(
    "loop",
    [
        "class Far(somewhere.Config):\n    x: int = 1\nfor f in fields(Far):\n    parser.add_argument(f'--{f.name}')\n",
        "for f in fields(somewhere.Config):\n    parser.add_argument(f'--{f.name}')\n",
        "for f in fields(Config):\n    parser.add_argument(f'--{f.name.upper()}')\n",
        "D = {'a': 1}\nD['b'] = 2\nfor name in D:\n    parser.add_argument(f'--{name}')\n",
        "D = {'a': 1}\nD.update(b=2)\nfor name in D:\n    parser.add_argument(f'--{name}')\n",
        "for name in somewhere.NAMES:\n    parser.add_argument(f'--{name}')\n",
        "class Own:\n    x: int = 1\n    @classmethod\n    def parse(cls):\n        for f in fields(cls):\n            parser.add_argument(f'--{f.name}')\n"
        "class More(Own):\n    y: int = 1\nMore.parse()\n",
    ],
)
def test_a_loop_over_what_is_not_written_here_is_not_read(tmp_path: Path, loop: str) -> None:
    """Fields of a class elsewhere, or of one that has more in another class, leave open which flags there are."""
    file = tmp_path / "task.py"
    file.write_text(f"{CONFIG}{loop}parser.parse_args()\n")
    assert [one.split(":")[0] for one in findings(file, "--nothing=1")] == ["flags-unread"]
