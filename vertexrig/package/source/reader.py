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

from vertexrig.package.source import absl_flags, argparses, clicks, records, traits, typers
from vertexrig.package.source.astray import astray
from vertexrig.package.source.declared import Collector
from vertexrig.package.source.files import Tree, open_tree
from vertexrig.package.source.follow import imports, load
from vertexrig.package.source.listening import listeners
from vertexrig.package.source.model import TrainerSource
from vertexrig.package.source.names import Code, Module, full_name, last_name
from vertexrig.package.source.problem import SourceProblem
from vertexrig.package.source.reading import names_gcsfs, reads
from vertexrig.package.source.runs import Runs
from vertexrig.package.source.saving import remote, saves, tells_chief
from vertexrig.package.source.slips import needed_names, slips, unused_reports
from vertexrig.package.source.torches import torch_use, watches_memory

LIBRARIES: tuple[Callable[[Collector], None], ...] = (
    absl_flags.read,
    clicks.read,
    typers.read,
    records.read,
    argparses.read,  # last: what it reads depends on the libraries that were found
)
"""The readers of flag libraries; each adds what it knows to the same collector."""
# Command lines that are not declared call by call, nor by fields in the source: what they accept is not read.
_UNREAD = {
    "hydra.main": "hydra",
    "docopt.docopt": "docopt",
    "plac.call": "plac",
    "defopt.run": "defopt",
    "jsonargparse.ArgumentParser": "jsonargparse",
    "lightning.pytorch.cli.LightningCLI": "jsonargparse",
    "pytorch_lightning.cli.LightningCLI": "jsonargparse",
    "pytorch_lightning.utilities.cli.LightningCLI": "jsonargparse",
    "cyclopts.App": "cyclopts",
    "cyclopts.run": "cyclopts",
    "ml_collections.config_flags.DEFINE_config_file": "config_flags",
    "ml_collections.config_flags.config_flags.DEFINE_config_file": "config_flags",
    "pyrallis.wrap": "pyrallis",
    "draccus.wrap": "draccus",
    "configargparse.ArgParser": "configargparse",
    "configargparse.ArgumentParser": "configargparse",
    "configargparse.get_argument_parser": "configargparse",
}
"""A call's full name, and the library it belongs to."""


def read(source: Path | str, module: str | None = None) -> TrainerSource:
    """Reads a trainer's source without importing or running any of it. Never raises for what it reads.

    Args:
        source: The trainer's folder, a single `.py` file, or a built archive (`.tar.gz`, `.whl`, `.zip`).
        module: The entry module, such as `trainer.task`: what Vertex AI runs with `python -m`. Not needed for a file.

    Returns:
        What was found; `problems` says what could not be read.
    """
    tree, entry_file, problems = open_tree(Path(source))
    return read_tree(tree, entry_file, module, problems)


def read_tree(tree: Tree, entry_file: str | None, module: str | None, problems: list[SourceProblem]) -> TrainerSource:
    """Like `read`, for files that were found already.

    Args:
        tree: Where modules are looked up.
        entry_file: The file that is run, None if a module is.
        module: The entry module, None if a file is run.
        problems: What went wrong so far.
    """
    modules = load(tree, entry_file, module, problems)
    name = module or (Path(entry_file).stem if entry_file else "")
    if not modules:
        return TrainerSource(module=name, problems=tuple(problems))
    code = Code(modules)
    flags, runs = _collect(code), Runs(code)
    keras, legacy = traits.keras_uses(code)
    environment, complete = traits.environment(code)
    return TrainerSource(
        module=name,
        files=tuple(item.file for item in modules),
        flags=tuple(flags.flags),
        flags_unread=tuple(flags.unread),
        parsers=frozenset(flags.parsers),
        tolerates_unknown=flags.tolerates_unknown,
        abbreviations=flags.abbreviations,
        commands=tuple(flags.commands),
        command_required=flags.command_required,
        metrics=tuple(traits.metrics(code, runs, unused_reports(code))),
        strategies=tuple(traits.strategies(code)),
        keras=keras,
        legacy_keras=legacy,
        environment=environment,
        environment_needed=runs.needed({*environment, *needed_names(code)}),
        environment_complete=complete,
        saves=tuple(saves(code)),
        torch=torch_use(code, flags.flags),
        astray=tuple(astray(code)),
        reads=tuple(reads(code, flags.flags)),
        names_gcsfs=names_gcsfs(code, tree),
        listens=tuple(listeners(code)),
        watches_memory=watches_memory(code),
        tells_chief=tells_chief(code),
        names_bucket=remote(code),
        imports=tuple(imports(code, tree)),
        slips=tuple(slips(code, runs, flags)),
        problems=tuple(problems),
    )


def _collect(code: Code) -> Collector:
    """The flags declared anywhere in the modules of `code`."""
    found = Collector(code)
    for call in code.calls:
        library = _UNREAD.get(full_name(call.node.func, call.module))
        # checked by the full name, so that an import under another name is seen, and a function of the same last name
        # is not
        if library is not None:
            found.parsers.add(library)
            found.left.add(id(call))
            found.skip(call, f"flags made by {library} are not read")
    for read_library in LIBRARIES:
        read_library(found)
    for module in code.modules:
        _argv(found, module)
    files = [module.file for module in code.modules]
    # in the order of the source, whichever reader found them: messages name the first
    found.flags = sorted(records.merged(found.flags), key=lambda flag: (files.index(flag.file), flag.line))
    return found


def _argv(found: Collector, module: Module) -> None:
    """A trainer that reads `sys.argv` itself may take anything, unless it only hands it to a parser."""
    handed = {
        id(argument)
        for call in module.calls
        if last_name(call.node.func) in {"parse_args", "parse_known_args", "run", "main", "FLAGS", "Path", "basename"}
        for outer in call.node.args
        for argument in ast.walk(outer)
    }
    for node, _ in module.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            handed.add(id(node.value))  # sys.argv[0] is the program's name
        is_argv = isinstance(node, ast.Attribute) and full_name(node, module) == "sys.argv"
        if is_argv and id(node) not in handed:
            found.unread.append(SourceProblem("sys.argv is read by hand", module.file, getattr(node, "lineno", 1)))
            found.parsers.add("sys.argv")
