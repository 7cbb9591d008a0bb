"""What is known of a trainer's source: plain values, with no part in how they were read."""

# No postponed annotations: they are read at run time, and over 100 would be compiled one by one whenever the cache is read.
from dataclasses import dataclass, field

DYNAMIC = "dynamic"
"""A type, action or nargs that is not plain in the source."""
DEFAULT_METRIC = "training/hptuning/metric"
"""The name cloudml-hypertune 0.1.0.dev6 reports under when the tag is empty (hypertune.py)."""
WITHOUT_VALUE = frozenset(
    {"store_true", "store_false", "store_const", "append_const", "count", "help", "version", "BooleanOptionalAction"}
)
_ABSL_SWITCHES = """
alsologtostderr logtostderr showprefixforinfo only_check_args only_check_flags pdb pdb_post_mortem run_with_pdb
run_with_profiling use_cprofile_for_profiling helpfull helpshort helpxml
""".split()
_ABSL_OWN = {
    **dict.fromkeys((f"{off}{name}" for name in _ABSL_SWITCHES for off in ("", "no")), DYNAMIC),
    **dict.fromkeys(
        ("v", "verbosity", "stderrthreshold", "log_dir", "logger_levels", "flagfile", "undefok", "profile_file"),
        "store",
    ),
}
"""Flags that absl declares itself, with their actions (absl-py 2.4.0)."""


class _InFile:
    file: str
    line: int | None

    @property
    def where(self) -> str:
        """`trainer/task.py:12`; the file alone if the line is not known."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class SourceProblem(_InFile):
    """Something that kept part of the trainer from being read.

    Args:
        message: What is wrong, in one line.
        file: The file, relative to the trainer's folder; empty if it concerns no file.
        line: Its line, counted from 1; None if unknown.
        code: `module` (there is no such module), `unnamed` (none was named), `syntax` (a file does not parse), or empty.
        nearest: The module that may have been meant.
    """

    message: str
    file: str = ""
    line: int | None = None
    code: str = ""
    nearest: str = ""


@dataclass(frozen=True)
class Flag(_InFile):
    """One declared command-line flag or positional argument.

    Args:
        names: As written: `("--learning_rate", "-l")`; a positional has one name without a dash.
        dest: The attribute the value is stored under.
        type: `str`, `int`, `float`, `bool`, a callable's dotted name, `lambda`, or `dynamic`.
        required: Whether the trainer stops when it is not given.
        default: The default if it is one plain constant, else None.
        empty: Whether it plainly holds nothing (None, "") where the command line does not give it.
        default_variable: The `AIP_…` variable that gives the default, empty if none does.
        choices: The values allowed, as text, or None if any value is, or if the source does not list them plainly.
        action: `store`, `store_true`, `store_false`, `BooleanOptionalAction`, `append`, ..., or `dynamic`.
        nargs: As declared (`"?"`, `"*"`, `"+"`, `"2"`), `dynamic`, or None.
        takes_float_text: Whether the text `128.0` is accepted; None if that is not known.
        parser: `argparse`, `absl`, `click`, `typer`, `transformers` or `jsonargparse`.
        from_variable: Whether an environment variable gives it where the command line does not.
        file: File of the declaration, relative to the trainer's folder.
        line: Its line, counted from 1.
        commands: The sub-commands it belongs to; empty: the program itself; None: that is not known.
    """

    names: tuple[str, ...]
    dest: str
    type: str = "str"
    required: bool = False
    default: str | int | float | bool | None = None
    empty: bool = False
    default_variable: str = ""
    choices: tuple[str, ...] | None = None
    action: str = "store"
    nargs: str | None = None
    takes_float_text: bool | None = True
    parser: str = "argparse"
    from_variable: bool = False
    file: str = ""
    line: int = 0
    commands: tuple[str, ...] | None = ()

    @property
    def positional(self) -> bool:
        """Whether this is a positional argument, which Vertex AI never fills for a hyperparameter."""
        return not self.names[0].startswith("-")

    @property
    def takes_value(self) -> bool | None:
        """Whether `--flag=value` is accepted; None if the action is not known."""
        if self.action == DYNAMIC:
            return None
        return self.action not in WITHOUT_VALUE and self.nargs != "0"

    @property
    def bool_trap(self) -> bool:
        """`type=bool` of argparse turns every non-empty text into True, `"False"` as well."""
        return self.parser == "argparse" and self.type == "bool" and self.action in {"store", "append"}


@dataclass(frozen=True)
class SourcePlace(_InFile):
    """A place in the trainer: file relative to its folder, line counted from 1, and the text there."""

    file: str
    line: int
    text: str = ""


@dataclass(frozen=True)
class ReportedMetric(_InFile):
    """One report of a metric.

    Args:
        tag: The id it is reported under, None where only the running program knows.
        file: Where it is reported, relative to the trainer's folder.
        line: Its line, counted from 1.
        repeated: Whether it is reported again and again (in a loop, by a Keras callback); None if that is not known.
        unused: The function or class that holds the report and that nothing in the trainer uses; empty if it is used.
    """

    tag: str | None
    file: str
    line: int
    repeated: bool | None = None
    unused: str = ""


@dataclass(frozen=True)
class Defect(_InFile):
    """One place that ends a trainer, or makes it do nothing, though its files parse.

    Args:
        kind: `name` (used and bound nowhere), `attribute` (of the parsed flags, and no flag's), `relative` (an import in a
            module without a package), `idle` (the module that is run only defines things), `fixed` (`parse_args([])`),
            `notebook` (`get_ipython()`), `left-out` (a folder that is read and not packed).
        file: Where, relative to the trainer's folder.
        line: Its line, counted from 1.
        text: The name, the attribute, the module, the call or the folder.
        nearest: What may have been meant; empty if nothing is near.
        certain: Whether every run comes there; False: it is behind a branch, or in a function that may not be called.
    """

    kind: str
    file: str
    line: int
    text: str
    nearest: str = ""
    certain: bool = True


@dataclass(frozen=True)
class Import(_InFile):
    """One import statement's module.

    Args:
        module: Absolute dotted name.
        file: Where it is imported.
        line: Its line, counted from 1.
        kind: `stdlib`, `own` (found in the trainer), `missing` (the trainer's own, but not there) or `other`.
        caught: Whether the trainer survives its absence (`try` / `except ImportError`, `if TYPE_CHECKING`).
        at_import: Whether it runs when the entry module is imported, rather than inside a function.
        beside: Of `other`: the trainer's module of that name in the importing module's own package, such as
            `trainer.model` for `import model`. Python 2 found that one, Python 3 does not. Empty if there is none.
    """

    module: str
    file: str
    line: int
    kind: str
    caught: bool
    at_import: bool
    beside: str = ""

    @property
    def correction(self) -> str:
        """How an import is written that finds `beside`."""
        package, _, module = self.beside.rpartition(".")
        return f"write `from {package} import {module}`, or `from {self.beside} import NAME`"


@dataclass(frozen=True)
class Save(_InFile):
    """One place where a model is saved.

    Args:
        kind: `save` (of a Keras model), `save_model` or `ModelCheckpoint`.
        ending: What the path ends with; empty for a folder that the environment names, None if that is not plain.
        weights_only: `save_weights_only=True`.
        save_format: Whether `save_format=` is given.
        file: Where, relative to the trainer's folder.
        line: Its line, counted from 1.
    """

    kind: str
    ending: str | None
    weights_only: bool
    save_format: bool
    file: str
    line: int


@dataclass(frozen=True)
class OldName(_InFile):
    """One use of a name that newer releases of TensorFlow do not have.

    Args:
        file: Where, relative to the trainer's folder.
        line: Its line, counted from 1.
        text: The name, such as `tf.placeholder`.
        ended: The first release without it.
        certain: Whether every run comes there.
    """

    file: str
    line: int
    text: str
    ended: tuple[int, int]
    certain: bool


@dataclass(frozen=True)
class PathOrigin:
    """What a path begins with: one of these.

    Args:
        text: Text, such as `gs://bucket/data`.
        variable: The name of the `AIP_…` variable that holds it, which is a gs:// path.
        flag: The attribute of the flag that gives it.
    """

    text: str = ""
    variable: str = ""
    flag: str = ""


@dataclass(frozen=True)
class PathUse(_InFile):
    """One call that treats any path as one of the machine, or that needs a library to read a path in a bucket.

    Args:
        function: Its full name, such as `numpy.load`; of a method, the method's.
        origins: What the path may begin with.
        writes: Whether it writes there.
        by_gcsfs: Whether the function knows gs:// where gcsfs is installed; False: it never does.
        file: Where, relative to the trainer's folder.
        line: Its line, counted from 1.
    """

    function: str
    origins: tuple[PathOrigin, ...]
    writes: bool
    by_gcsfs: bool
    file: str
    line: int


@dataclass(frozen=True)
class TorchUse:
    """What a PyTorch trainer says plainly of its processes and devices.

    Args:
        backends: Calls of `init_process_group`, each with the backend it names.
        lone_worlds: Places that take `WORLD_SIZE` as 1 where it is not set.
        loaders: Each `DataLoader` without a sampler.
        workers: Each `DataLoader` with worker processes, and their number as text: `4`, `os.cpu_count()`, or `--name`, a flag.
        saves: Calls of `torch.save`.
        cuda: Places that use a GPU without asking whether there is one.
        samples: Whether the source names a sampler that shares examples out.
        knows_rank: Whether it names its rank.
        uses_rank: Whether it does more with it than print it and join the others: it may then let one process save.
        asks_for_cuda: Whether it asks for the GPUs there are.
        starts_several: Whether it names what starts processes, or spreads a model over devices.
        joins_alone: Whether it joins a process group under no condition, so also as the only process.
        needs_ranks: Whether it joins a process group whatever its arguments are, and by variables that torchrun sets.
    """

    backends: tuple[SourcePlace, ...] = ()
    lone_worlds: tuple[SourcePlace, ...] = ()
    loaders: tuple[SourcePlace, ...] = ()
    workers: tuple[SourcePlace, ...] = ()
    saves: tuple[SourcePlace, ...] = ()
    cuda: tuple[SourcePlace, ...] = ()
    samples: bool = False
    knows_rank: bool = False
    uses_rank: bool = False
    asks_for_cuda: bool = False
    starts_several: bool = False
    joins_alone: bool = False
    needs_ranks: bool = False


@dataclass(frozen=True)
class TrainerSource:
    """What was read of one trainer. Every `file` is relative to its folder.

    Args:
        module: The entry module.
        files: The files read, the entry first.
        flags: Declared command-line flags.
        flags_unread: Declarations that could not be read: more flags may exist than `flags` holds.
        parsers: Command-line parsers used; empty: the trainer reads no arguments, and any argument is ignored.
        tolerates_unknown: Unknown flags are ignored instead of ending the trainer.
        abbreviations: argparse takes an unambiguous beginning of a long flag (`allow_abbrev`, its default).
        commands: Paths of the sub-commands: `train`, one within another `data prepare`.
        command_required: Whether the program stops without one.
        command: The one that a job's arguments choose; empty if none is.
        command_unknown: The word in its place that is not a sub-command.
        launcher: Words of an ENTRYPOINT that starts the program which the job's args name, such as torchrun.
        leading: Arguments that the image's entry point gives before the job's own.
        base_image: The image that the container's own starts from; empty if that is not known.
        drops_args: An ENTRYPOINT in shell form, which starts the program without the job's args.
        entrypoint: An ENTRYPOINT in exec form that starts the program by itself, with the words it has as text.
        args_replace: A CMD without an ENTRYPOINT, which the job's args take the place of.
        metrics: Reports through cloudml-hypertune.
        strategies: tf.distribute strategies made, by their present names.
        keras: Which Keras is used, of `keras` (version 3), `tf_keras` (version 2) and `tf.keras` (what
            TF_USE_LEGACY_KERAS decides from TensorFlow 2.16 on), each with its first place.
        legacy_keras: The value the trainer gives TF_USE_LEGACY_KERAS, None if it gives none.
        environment: Names of environment variables named in the source (`AIP_MODEL_DIR`, ...), with a place.
        environment_needed: Any variables whose absence would end the trainer (`os.environ["TF_CONFIG"]`).
        environment_complete: False if names are put together while running (`f"AIP_{kind}_DIR"`).
        old_names: Uses of names that newer releases of TensorFlow do not have.
        saves: Where a Keras model is saved.
        torch: What a PyTorch trainer does.
        mounts: Texts that start gcsfuse.
        path_uses: Calls that treat any path as one of the machine, or need a library to read a path in a bucket.
        names_gcsfs: Whether the trainer imports or requires gcsfs.
        lacks_gcsfs: Whether it runs in an image of its own that has no gcsfs.
        watches_memory: Whether the source names /dev/shm.
        tells_chief: Whether the source tells the chief from other workers.
        saves_elsewhere: Whether the source names a place in Cloud Storage, or uploads something.
        starts_programs: Whether it starts another Python program, which is not read.
        imports: Every import of the modules read.
        defects: Places that would end it after its machine has started, or let it do nothing.
        problems: What could not be read.
    """

    module: str
    files: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    flags_unread: tuple[SourceProblem, ...] = ()
    parsers: frozenset[str] = frozenset()
    tolerates_unknown: bool = False
    abbreviations: bool = True
    commands: tuple[str, ...] = ()
    command_required: bool = False
    command: str = ""
    command_unknown: str = ""
    launcher: tuple[str, ...] = ()
    leading: tuple[str, ...] = ()
    base_image: str = ""
    drops_args: SourcePlace | None = None
    entrypoint: SourcePlace | None = None
    args_replace: SourcePlace | None = None
    metrics: tuple[ReportedMetric, ...] = ()
    strategies: frozenset[str] = frozenset()
    keras: dict[str, SourcePlace] = field(default_factory=dict)
    legacy_keras: str | None = None
    environment: dict[str, SourcePlace] = field(default_factory=dict)
    environment_needed: dict[str, SourcePlace] = field(default_factory=dict)
    environment_complete: bool = True
    old_names: tuple[OldName, ...] = ()
    saves: tuple[Save, ...] = ()
    torch: TorchUse = field(default_factory=TorchUse)
    mounts: tuple[SourcePlace, ...] = ()
    path_uses: tuple[PathUse, ...] = ()
    names_gcsfs: bool = False
    lacks_gcsfs: bool = False
    watches_memory: bool = False
    tells_chief: bool = False
    saves_elsewhere: bool = False
    starts_programs: bool = False
    imports: tuple[Import, ...] = ()
    defects: tuple[Defect, ...] = ()
    problems: tuple[SourceProblem, ...] = ()

    @property
    def flags_complete(self) -> bool:
        """Whether `flags` is all the trainer declares."""
        return not self.flags_unread and not self.problems

    @property
    def metrics_complete(self) -> bool:
        """Whether `metrics` names all that the trainer can report."""
        plain = all(metric.tag is not None for metric in self.metrics)
        return plain and not self.problems and not self.starts_programs

    @property
    def metric_ids(self) -> frozenset[str]:
        """The metric ids the source names plainly."""
        return frozenset(metric.tag for metric in self.metrics if metric.tag is not None)

    def flag(self, name: str) -> Flag | None:
        """Return the flag that takes `--name`, as the trainer's parser would find it.

        argparse also takes an unambiguous beginning of a long flag (`allow_abbrev`, on by default).

        Args:
            name: With or without its dashes: `learning_rate` is looked up as `--learning_rate`.
        """
        wanted = name if name.startswith("-") else f"--{name}"
        for flag in self.flags:
            if wanted in flag.names:
                return flag
        own = _ABSL_OWN.get(wanted.lstrip("-")) if "absl" in self.parsers else None
        if own is not None:
            return Flag((wanted,), wanted.lstrip("-"), action=own, parser="absl")
        begun = [
            flag
            for flag in self.flags
            if self.abbreviations
            and flag.parser == "argparse"
            # "--" alone begins every long flag
            and len(wanted) > 2
            and any(option.startswith(wanted) for option in flag.names)
        ]
        return begun[0] if len(begun) == 1 else None

    def short_flags(self, word: str) -> list[tuple[Flag, str | None]]:
        """Return the flags of a word such as `-vv` or `-b32`, each with its value; empty if the word is something else."""
        found: list[tuple[Flag, str | None]] = []
        rest = word[1:] if word.startswith("-") and not word.startswith("--") else ""
        while rest:
            flag = next((flag for flag in self.flags if f"-{rest[0]}" in flag.names), None)
            if flag is None or flag.takes_value is None:
                return []
            # argparse gives what is left of the word to the first letter that takes a value: `-b32` is b with 32
            if flag.takes_value:
                return [*found, (flag, rest[1:] or None)]
            found.append((flag, None))
            rest = rest[1:]
        return found
