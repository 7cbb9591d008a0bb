"""What a trainer's source says about itself, read without importing it: flags, metrics, strategies, environment.

`read` returns a plain value for the checks that hold a study or a cluster against the trainer. It goes by the syntax
trees of the entry module and of the trainer's own modules that it imports, so it needs neither TensorFlow nor the
trainer's dependencies, and it runs nothing. Where the source does not say something plainly the value says so
(`flags_complete`, `metrics_complete`, `environment_complete`), and a check must then stay silent.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

from vertexrig.trainer_source import (
    absl_flags,
    argparse_flags,
    click_flags,
    field_classes,
    tensorflow_usage,
    typer_flags,
)
from vertexrig.trainer_source.bucket_paths import mounts, names_gcsfs, path_uses
from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.defects import defects
from vertexrig.trainer_source.flag_collector import Collector
from vertexrig.trainer_source.follow import follow_tree
from vertexrig.trainer_source.metrics import metrics
from vertexrig.trainer_source.model_saves import saves, saves_elsewhere, tells_chief
from vertexrig.trainer_source.modules import Module, full_name, last_name
from vertexrig.trainer_source.other_programs import starts_programs
from vertexrig.trainer_source.reachability import Runs
from vertexrig.trainer_source.source_tree import Tree, open_tree
from vertexrig.trainer_source.tensorflow_names import old_names
from vertexrig.trainer_source.torch_usage import torch_use, watches_memory
from vertexrig.trainer_source.trainer_model import SourceProblem, TrainerSource

LIBRARIES: tuple[Callable[[Collector], None], ...] = (
    absl_flags.read,
    click_flags.read,
    typer_flags.read,
    field_classes.read,
    argparse_flags.read,  # last: what it reads depends on the libraries that were found
)
"""The readers of flag libraries; each adds what it knows to the same collector."""
_UNREAD = {
    name: library
    for library, names in {
        "hydra": "hydra.main",
        "docopt": "docopt.docopt",
        "plac": "plac.call",
        "defopt": "defopt.run",
        "tap": "tap.Tap tap.tapify",
        "tyro": "tyro.cli tyro.extras.subcommand_cli_from_dict",
        "fire": "fire.Fire",
        "simple_parsing": "simple_parsing.ArgumentParser simple_parsing.parse simple_parsing.parse_known_args",
        "jsonargparse": """
            jsonargparse.CLI jsonargparse.auto_cli jsonargparse.ArgumentParser lightning.pytorch.cli.LightningCLI
            pytorch_lightning.cli.LightningCLI pytorch_lightning.utilities.cli.LightningCLI
        """,
        "cyclopts": "cyclopts.App cyclopts.run",
        "pydantic_settings": "pydantic_settings.CliApp.run",
        "config_flags": """
            ml_collections.config_flags.DEFINE_config_file ml_collections.config_flags.config_flags.DEFINE_config_file
        """,
        "pyrallis": "pyrallis.wrap",
        "draccus": "draccus.wrap",
        "configargparse": "configargparse.ArgParser configargparse.ArgumentParser configargparse.get_argument_parser",
    }.items()
    for name in names.split()
}
"""Full name of a call or base class -> its library, for libraries whose flags are not read."""


def read(source: Path | str, module: str | None = None) -> TrainerSource:
    """Read a trainer's source without importing or running any of it. Never raises for what it reads.

    Args:
        source: The trainer's folder, a single `.py` file, or a built archive (`.tar.gz`, `.whl`, `.zip`).
        module: The entry module, such as `trainer.task`: what Vertex AI runs with `python -m`. Not needed for a file.

    Returns:
        What was found; `problems` says what could not be read.
    """
    tree, entry_file, problems = open_tree(Path(source))
    return read_tree(tree, entry_file, module, problems)


def read_tree(tree: Tree, entry_file: str | None, module: str | None, problems: list[SourceProblem]) -> TrainerSource:
    """Return what `read` does, for files that were found already; the arguments are those of `follow_tree`."""
    followed = follow_tree(tree, entry_file, module, problems)
    name = module or (Path(entry_file).stem if entry_file else "")
    code = followed.code
    if code is None:
        return TrainerSource(module=name, problems=followed.problems)
    collector, runs = _collect(code), Runs(code)
    keras, legacy = tensorflow_usage.keras_uses(code)
    environment, complete = tensorflow_usage.environment(code)
    return TrainerSource(
        module=name,
        files=followed.files,
        flags=tuple(collector.flags),
        flags_unread=tuple(collector.unread),
        parsers=frozenset(collector.parsers),
        tolerates_unknown=collector.tolerates_unknown,
        abbreviations=collector.abbreviations,
        commands=tuple(collector.commands),
        command_required=collector.command_required,
        metrics=tuple(metrics(code, runs)),
        strategies=tensorflow_usage.strategies(code),
        keras=keras,
        legacy_keras=legacy,
        environment=environment,
        environment_needed=runs.needed(),
        environment_complete=complete,
        old_names=tuple(old_names(code, runs)),
        saves=tuple(saves(code)),
        torch=torch_use(code, runs, collector.flags),
        mounts=tuple(mounts(code)),
        path_uses=tuple(path_uses(code, collector.flags)),
        names_gcsfs=names_gcsfs(code, tree),
        watches_memory=watches_memory(code),
        tells_chief=tells_chief(code),
        saves_elsewhere=saves_elsewhere(code),
        starts_programs=starts_programs(code),
        imports=followed.imports,
        defects=tuple(defects(code, runs, collector)),
        problems=followed.problems,
    )


def _collect(code: Code) -> Collector:
    """Return the flags declared anywhere in the modules of `code`."""
    collector = Collector(code)
    for call in code.calls:
        library = _UNREAD.get(full_name(call.node.func, call.module))
        # checked by the full name, so that an import under another name is seen, and a function of the same last name
        # is not
        if library is not None:
            collector.parsers.add(library)
            collector.handled_calls.add(id(call))
            collector.skip(call, f"flags made by {library} are not read")
            # lightning 2.6: a LightningCLI that runs wants one of these first
            if (
                last_name(call.node.func) == "LightningCLI"
                and "run" not in call.keywords
                and "args" not in call.keywords
            ):
                collector.commands |= dict.fromkeys(("fit", "validate", "test", "predict"))
                collector.command_required = True
    for node, _, module in code.each(ast.ClassDef):
        for base in node.bases:
            library = _UNREAD.get(full_name(base, module))
            if library is not None:
                collector.parsers.add(library)
                collector.unread.append(
                    SourceProblem(f"flags made by {library} are not read", module.file, base.lineno)
                )
    # a settings class of pydantic reads the command line only if it is told to
    for keyword, _, module in code.each(ast.keyword):
        off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg in {"cli_parse_args", "_cli_parse_args"} and not off:
            collector.parsers.add("pydantic_settings")
            problem = SourceProblem("flags made by pydantic_settings are not read", module.file, keyword.value.lineno)
            collector.unread.append(problem)
    for read_library in LIBRARIES:
        read_library(collector)
    for module in code.modules:
        _argv(collector, module)
    files = [module.file for module in code.modules]
    # in the order of the source, whichever reader found them: messages name the first
    collector.flags = sorted(collector.flags, key=lambda flag: (files.index(flag.file), flag.line))
    return collector


def _argv(collector: Collector, module: Module) -> None:
    """Note that a trainer that reads `sys.argv` itself may take anything, unless it only hands it to a parser."""
    handed = {
        id(argument)
        for call in module.calls
        if last_name(call.node.func) in {"parse_args", "parse_known_args", "run", "main", "FLAGS", "Path", "basename"}
        for outer in call.node.args
        for argument in ast.walk(outer)
    }
    for item, _ in module.each(ast.Subscript):
        if isinstance(item.slice, ast.Constant) and item.slice.value == 0:
            handed.add(id(item.value))  # sys.argv[0] is the program's name
    for node, _ in module.each(ast.Attribute):
        if full_name(node, module) == "sys.argv" and id(node) not in handed:
            collector.unread.append(SourceProblem("sys.argv is read by hand", module.file, node.lineno))
            collector.parsers.add("sys.argv")
