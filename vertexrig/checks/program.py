"""What runs in a pool: module, arguments, command, environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vertexrig.checks.model import (
    ARGPARSE,
    CONTAINER_SETTINGS,
    DISTRIBUTED,
    ENV_APOSTROPHE,
    ENV_REQUIRED,
    GCLOUD,
    REST,
    SDK,
    SERVER,
    TUNING_DOC,
    WALKTHROUGH,
    Context,
    Problem,
    Rule,
    join,
)
from vertexrig.finding import Severity, write
from vertexrig.spec.document import Document, Pool
from vertexrig.text import is_shell, quoted

if TYPE_CHECKING:
    from vertexrig.trainer_source.trainer_model import TrainerSource

_MODULE = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_SEVERAL = re.compile(r"(--?[A-Za-z][\w.-]*)=(\S+\s+--[A-Za-z][\w.-]*=.*)$", re.DOTALL)
"""`--epochs=3 --lr=0.1` in one item."""
_GLUED = re.compile(r"(--?[A-Za-z][\w.-]*)\s+(\S.*)", re.DOTALL)
# $(NAME) is replaced by a variable, $$(NAME) is the text $(NAME): EnvVar.value in the REST reference
_REFERENCE = r"(?<!\$)\$\(([A-Za-z_][A-Za-z0-9_]*)\)"
_QUOTED = r"""([\w.@/+~:-]+)=(?:'([^'",=()\[\]{}\\]*)'|"([^'",=()\[\]{}\\]*)")"""
"""`training='exp1'`. With other characters the quotes may be those of the program's own grammar, as of Hydra's."""


def _args(document: Document, *, of_shells: bool = True) -> Iterator[tuple[Pool, str, str]]:
    """Yield (pool, path, argument). With of_shells=False, skip pools whose args are words for a shell."""
    for pool in document.pools:
        if of_shells or not _in_shell(pool):
            yield from ((pool, path, arg) for path, arg in pool.items("args"))


def _variables(document: Document) -> Iterator[tuple[Pool, str, str]]:
    """Yield the name of each variable of each pool, with its path."""
    for pool in document.pools:
        for path, variable in pool.items("env"):
            yield pool, f"{path}.name", str(variable.get("name", ""))


def _flag(arg: str) -> str:
    """Return the flag an argument gives (`--epochs` of `--epochs=3`), "" if it gives none."""
    found = _FLAG.fullmatch(arg.partition("=")[0])
    return found[0] if found else ""


def _takes_next(word: str, trainer: TrainerSource | None) -> bool:
    """Whether a word is a flag whose value is the next word, as far as the trainer is known."""
    known = trainer.flag(word) if trainer is not None else None
    return _FLAG.fullmatch(word) is not None and (known is None or known.takes_value is not False)


def _in_shell(pool: Pool) -> bool:
    """Whether the args are words for a shell."""
    return bool(pool.words) and is_shell(pool.words[0])


def _of_script(pool: Pool) -> bool:
    """Whether the args are words for a shell script, which may evaluate them."""
    return bool(pool.words) and pool.words[0].endswith(".sh")


def module_missing(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        path = f"{pool.path}.pythonPackageSpec.pythonModule"
        if pool.python_package is not None and not pool.module and not document.refused_at(path):
            yield Problem(path, "pythonModule is required: python -m runs it", "write pythonModule: trainer.task")


def module_form(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        name = pool.module
        if not name or (re.fullmatch(_MODULE, name) and not name.endswith(".py")):
            continue
        path = f"{pool.path}.pythonPackageSpec.pythonModule"
        plain = name.removesuffix(".py").strip("/ ").replace("/", ".")
        edits = write(plain if re.fullmatch(_MODULE, plain) else None)
        # A dash cannot be imported, but python -m finds a file of that name.
        dashed = bool(re.fullmatch(_MODULE, name.replace("-", "_"))) and not name.endswith(".py")
        text = f"{name!r} is not a module: names joined by dots, such as trainer.task"
        yield Problem(path, text, "", Severity.WARNING if dashed else None, edits=edits)


def arg_quotes(document: Document, context: Context) -> Iterator[Problem]:
    for pool, path, arg in _args(document, of_shells=False):
        flag, equals, value = arg.partition("=")
        is_flag = bool(equals and _FLAG.fullmatch(flag))
        value = value if is_flag else arg
        override = re.fullmatch(_QUOTED, arg) if not is_flag and not _of_script(pool) else None
        if override is not None and (plain := (override[2] or override[3] or "").strip()):
            # hydra-core 1.3.2, run 2026-11-29
            text = f"the quotes in {arg[:80]} reach the program: Hydra, for one, reads a number in quotes as a string"
            yield Problem(path, text, edits=write(f"{override[1]}={plain}", safe=False))
        elif len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'" and not _is_list(value):
            text = f"the quotes in {arg[:80]} reach the program as part of the value"
            fixed = arg[: len(arg) - len(value)] + value[1:-1]
            yield Problem(path, text, edits=write(fixed))


def _is_list(value: str) -> bool:
    """Whether the quotes belong to several quoted items (`"a","b"`), which a program may want."""
    return value[0] in value[1:-1]


def arg_glued(document: Document, context: Context) -> Iterator[Problem]:
    last_pool, last_arg = -1, ""  # of the item before
    trainer, ours = context.trainer, []
    if trainer is not None:
        # here: without a trainer it is not needed
        from vertexrig.checks._arguments import trainer_pools

        ours = trainer_pools(document, trainer)
    for pool, path, arg in _args(document, of_shells=False):
        before = last_arg if last_pool == pool.index else ""  # if it is a flag, this item may be its value
        last_pool, last_arg = pool.index, arg
        several = _SEVERAL.match(arg)
        if several:
            text = f"{quoted(arg)} is one argument: the program sees {several[1]} with the value {quoted(several[2])}"
            yield Problem(path, text, "write each flag as an item of its own", Severity.WARNING)
            continue
        found = _GLUED.fullmatch(arg)
        # a short flag's value may follow it in one word: `-n 5`
        if found and not (trainer is not None and pool in ours and trainer.short_flags(arg)):
            text = f"{quoted(arg)} is one argument: the program sees a flag with a space in its name"
            fix = f"write {found[1]}={found[2]}, or two items"
            value_of = before if _takes_next(before, trainer) else ""
            if value_of:
                text = (
                    f"{quoted(arg)} is one argument: the value of {value_of[:80]}, or a flag with a space in its name"
                )
            # only a warning if the program may not be Python, or if the text may be the value of the flag before it
            sure = pool.python_package is not None and not value_of
            severity = None if sure else Severity.WARNING
            yield Problem(path, text, fix, severity, edits=write(f"{found[1]}={found[2]}", safe=sure))


def arg_blank(document: Document, context: Context) -> Iterator[Problem]:
    last_pool, last_arg = -1, ""  # of the item before
    for pool, path, arg in _args(document):
        before = last_arg if last_pool == pool.index else ""  # if it is a flag, this item may be its value
        last_pool, last_arg = pool.index, arg
        if not arg.strip():
            if not _takes_next(before, context.trainer):  # an empty text may well be a flag's value
                yield Problem(path, "the argument is empty; the program receives an empty string", "remove it")
        elif arg != arg.strip() and arg.strip().startswith("-"):
            text = f"{quoted(arg)} begins or ends with white space, which reaches the program"
            yield Problem(path, text, edits=write(arg.strip()))


def arg_spellings(document: Document, context: Context) -> Iterator[Problem]:
    seen: dict[tuple[int, str], str] = {}  # pool and flag without its dashes -> as it is written first
    for pool, path, arg in _args(document):
        flag = _flag(arg)
        plain = flag.lstrip("-").replace("-", "_")
        # -n and -N are two flags
        first = seen.setdefault((pool.index, plain.casefold() if len(plain) > 1 else plain), flag)
        if first != flag:
            text = f"{flag} and {first} are two spellings of one flag; a program knows one of them"
            yield Problem(path, text, "keep the spelling the program declares")


def arg_repeated(document: Document, context: Context) -> Iterator[Problem]:
    seen = set()
    for pool, path, arg in _args(document):
        flag = _flag(arg)
        if flag and (pool.index, flag) in seen:
            yield Problem(path, f"{flag} is given more than once; most programs take the last")
        seen.add((pool.index, flag))


def args_length(document: Document, context: Context) -> Iterator[Problem]:
    most = context.catalog.limits.integer("args.max_chars")
    for pool in document.pools:
        length = sum(len(arg) for arg in pool.args)
        # The documentation allows this many, the service's own message does not (report of 2023-03-29).
        if length >= most:
            text = f"the arguments have {length:,} characters together; they must have fewer than {most:,}"
            yield Problem(f"{pool.program_path}.args", text, "put them into a file in Cloud Storage")


def arg_commas(document: Document, context: Context) -> Iterator[Problem]:
    for _, path, arg in _args(document):
        if "," in arg and _flag(arg):
            text = f"{arg[:80]} is valid in this file. On the command line, gcloud's --args would split it at the commas and replace all args"
            yield Problem(path, text)


def command_alone(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        if len(pool.command) == 1 and not pool.args:
            text = "command without args: the image's own CMD is ignored too"
            yield Problem(f"{pool.program_path}.command", text, "write args if the command needs them")


def env_name(document: Document, context: Context) -> Iterator[Problem]:
    form = re.compile(context.catalog.limits.text("env.name_pattern"))
    for _, path, name in _variables(document):
        if not form.fullmatch(name) and (name or not document.refused_at(path)):
            text = f"{quoted(name)} is not a name for a variable: letters, digits and _, no digit first"
            yield Problem(path, text if name else "a variable has no name")


def env_twice(document: Document, context: Context) -> Iterator[Problem]:
    seen = set()
    for pool, path, name in _variables(document):
        if name and (pool.index, name) in seen:
            yield Problem(path, f"the variable {name} is given twice", "keep one")
        seen.add((pool.index, name))


_EMPTY_DEFAULT = r"\$\{\w+:?-\}"
"""`${NAME:-}`: nothing, unless the variable is set."""


def env_value(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        for at, variable in pool.items("env"):
            path, value = f"{at}.value", str(variable.get("value") or "")
            if not document.refused_at(path) and not re.sub(_EMPTY_DEFAULT, "", value):
                by_default = " if its placeholder's variable is not set" if value else ""
                text = f"{variable.get('name') or 'a variable'} has no value{by_default}, and Vertex AI requires one"
                severity = Severity.WARNING if value else None
                yield Problem(
                    path, text, "write a value that is not empty, or remove the variable", severity, sure=True
                )


def env_apostrophe(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        for path, variable in pool.items("env"):
            if re.search(r"(?<!\\)'", str(variable.get("value", ""))):
                text = (
                    f"the value of {variable.get('name') or 'a variable'} has an apostrophe; "
                    "Vertex AI refused that in 2022, unless a backslash is before it"
                )
                fix = "pass the value without apostrophes: JSON with double quotes, or base64"
                yield Problem(f"{path}.value", text, fix, sure=True)


_SERVICE_NAMES = {"TF_CONFIG", "CLUSTER_SPEC", "TPU_CONFIG", "TPU_NODE_NAME"}
_SERVICE_PREFIXES = ("AIP_", "CLOUD_ML_", "CMLE_TRAINING_")
_OF_OUTPUT_FOLDER = {"AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"}
_OF_TENSORBOARD = {"AIP_TENSORBOARD_RESOURCE_NAME", "AIP_TENSORBOARD_API_URI"}
# a TrainingPipeline sets these for a managed dataset; a CustomJob and a trial have none
_OF_DATASET = {"AIP_TRAINING_DATA_URI", "AIP_VALIDATION_DATA_URI", "AIP_TEST_DATA_URI", "AIP_DATA_FORMAT"}
_SHELL_TEXT = re.compile(r"(?<!\$)\$\([A-Za-z_./~][^\s()]*\s[^)]*\)")
_BACKTICKS = re.compile(r"`[^`\n]+`")


def _set_by_service(document: Document, name: str) -> bool:
    """Whether Vertex AI sets a variable of this name in the document's job."""
    if name in _OF_OUTPUT_FOLDER:
        return "baseOutputDirectory" in document.job
    if name in _OF_TENSORBOARD:
        return "tensorboard" in document.job
    return name not in _OF_DATASET and (name in _SERVICE_NAMES or name.startswith(_SERVICE_PREFIXES))


def env_service_name(document: Document, context: Context) -> Iterator[Problem]:
    for _, path, name in _variables(document):
        if _set_by_service(document, name):
            text = f"{name} is set by Vertex AI; which of the two values wins is not documented"
            yield Problem(path, text, "use another name")


def env_reference(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        names = [str(variable.get("name", "")) for variable in pool.env]
        for number, variable in enumerate(pool.env):
            path, value = f"{pool.program_path}.env[{number}].value", str(variable.get("value", ""))
            for wanted in dict.fromkeys(re.findall(_REFERENCE, value)):
                if wanted not in names or wanted in names[:number]:
                    continue
                if wanted == names[number] and wanted not in names[number + 1 :]:
                    if not _set_by_service(document, wanted):
                        text = f"$({wanted}) stays as it is: the variable {wanted} refers to itself"
                        yield Problem(path, text, _WRITE_VALUE)
                else:
                    text = f"$({wanted}) stays as it is: {wanted} is defined further down"
                    yield Problem(path, text, f"move {wanted} up")
            command = _shell_command(pool, value)
            if command:
                text = f"the program receives the string {quoted(command)}: no shell runs it"
                yield Problem(path, text, _WRITE_VALUE, sure=True)


_WRITE_VALUE = "write the value itself; if it is a secret, let the program read it from Secret Manager"


def _shell_command(pool: Pool, value: str) -> str:
    """Return the command of a shell that a variable's value holds, "" if it holds none.

    A value with more words is a script or prose, and a program that evaluates its variables may run it.
    """
    found = _BACKTICKS.fullmatch(value.strip()) or _SHELL_TEXT.search(value)
    if found is None or any("eval" in word for word in pool.words):
        return ""
    rest = value.replace(found[0], "", 1).strip()
    return "" if re.search(r"\s", rest) else found[0]


RULES = (
    Rule("module-missing", Severity.ERROR, "A Python program names its module.", REST, module_missing),
    Rule("module-form", Severity.ERROR, "pythonModule is a dotted module name.", REST, module_form, "safe"),
    Rule("arg-quotes", Severity.WARNING, "No argument's value is wrapped in quotes.", WALKTHROUGH, arg_quotes, "safe"),
    Rule("arg-glued", Severity.ERROR, "A flag and its value are joined by = or are two items.", ARGPARSE, arg_glued, "safe"),
    Rule("arg-blank", Severity.WARNING, "No flag begins or ends with white space, and only a flag's value may be empty.",
         ARGPARSE, arg_blank, "safe"),
    Rule("arg-spellings", Severity.WARNING, "A flag is spelled in one way.", ARGPARSE, arg_spellings),
    Rule("arg-repeated", Severity.INFO, "A flag is given once.", ARGPARSE, arg_repeated),
    Rule("args-length", Severity.ERROR, "All arguments together have fewer than 100,000 characters.",
         TUNING_DOC, args_length),
    Rule("arg-commas", Severity.INFO, "Arguments with commas are in the file, not in gcloud's --args.",
         GCLOUD, arg_commas),
    Rule("command-alone", Severity.INFO, "A command of one word comes with its args.",
         CONTAINER_SETTINGS, command_alone),
    Rule("env-name", Severity.ERROR, "Variables are named by C identifiers.", REST, env_name),
    Rule("env-twice", Severity.ERROR, "Variables have different names.", join(SERVER, REST), env_twice),
    Rule("env-value", Severity.ERROR, "Variables have values.", join(ENV_REQUIRED, REST), env_value),
    Rule("env-apostrophe", Severity.WARNING, "No variable's value has an apostrophe.", ENV_APOSTROPHE, env_apostrophe),
    Rule("env-service-name", Severity.WARNING, "No variable has a name that Vertex AI sets in the job.",
         join(DISTRIBUTED, REST, SDK), env_service_name),
    Rule("env-reference", Severity.WARNING, "$(NAME) refers to a variable above, and no value is a shell's command.",
         REST, env_reference),
)  # fmt: skip
