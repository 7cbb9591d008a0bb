"""What a trainer does with `gs://` paths: those it opens as if they were local, whose writes are lost with the machine, and
those it reads with a function that needs more than the path.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from vertexrig.trainer_source.code import Code, owned, written_in
from vertexrig.trainer_source.modules import (
    FUNCTIONS,
    Definition,
    FunctionNode,
    Module,
    Scope,
    SourceCall,
    bound,
    dotted,
    enclosing_class,
    full_name,
    last_name,
    parameter_names,
    plain_text,
)
from vertexrig.trainer_source.source_tree import Tree
from vertexrig.trainer_source.trainer_model import Flag, PathOrigin, PathUse, SourcePlace

_VARIABLES = frozenset({"AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"})
_ARGUMENTS = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"})
_WRITERS = {
    **dict.fromkeys("open io.open os.makedirs os.mkdir pathlib.Path numpy.save numpy.savez numpy.savetxt".split(), 0),
    **dict.fromkeys("matplotlib.pyplot.savefig logging.FileHandler cv2.imwrite".split(), 0),
    **dict.fromkeys((f"transformers.{name}" for name in _ARGUMENTS), 0),
    **dict.fromkeys("joblib.dump torch.save shutil.copy shutil.copyfile shutil.copytree shutil.move".split(), 1),
}
"""Functions that write to a path of the machine, and which of their arguments it is."""
_METHODS = frozenset({"save_model", "save_pretrained"})
"""Methods of XGBoost, LightGBM, CatBoost and Transformers that write to a path of the machine, their first argument."""
KERAS_SAVE = re.compile(r"(?:tensorflow\.|tf_)?keras(?:\.src)?(?:\.models|\.saving)?\.save_model")
"""Keras' function that saves a model, by its full names."""
_HDF5 = (".h5", ".hdf5")
_KEYWORDS = (
    "file", "name", "path", "filename", "fname", "f", "dst", "filepath_or_buffer", "io", "path_or_buf", "fp", "output_dir",
    "save_directory", "filepath", "excel_writer",
)  # fmt: skip
_LOCAL_READERS = frozenset(
    """
    open io.open numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile numpy.memmap torch.load torch.jit.load
    joblib.load PIL.Image.open h5py.File tarfile.open zipfile.ZipFile os.listdir os.scandir os.walk os.path.exists
    os.path.isdir os.path.isfile glob.glob pathlib.Path
    """.split()
)
"""Functions that look for a file of the machine whatever the path begins with; the path is their first argument."""
# not read_parquet, which reads gs:// by pyarrow alone
_PANDAS = frozenset(f"pandas.read_{what}" for what in ("csv", "table", "json", "pickle", "excel", "feather", "fwf"))
_FRAME_WRITERS = frozenset(f"to_{what}" for what in ("csv", "json", "pickle", "excel", "feather"))
"""Methods of a pandas DataFrame; the path is their first argument."""
_OTHER_FRAMES = frozenset({"polars", "dask", "geopandas", "modin", "pyspark", "cudf"})
"""Libraries whose data frames have methods of the same names."""
_BUCKET = "gs://"
_NAMESPACES = re.compile(r"(?:\w+\.)*(?:args|opts?|options|flags|config|cfg|params|hparams|arguments)", re.IGNORECASE)
"""What a trainer calls the object that holds its flags."""
GCSFS = re.compile(rb"\bgcsfs\b|pandas\[[^\]]*gcp")
"""A requirement that brings gcsfs; the extra pandas[gcp] does, too."""
_DESCRIPTIONS = ("setup.py", "setup.cfg", "pyproject.toml", "requirements.txt")
# A trainer may be made to exhaust the machine that reads it: functions that call each other in many places.
_MAX_DEPTH, _MAX_CASES, _MAX_STEPS = 8, 16, 2_000

Case = tuple[PathOrigin, ...]
"""What a path may begin with in one case, such as one call of the function that it is handed to: each of these is possible."""


def path_uses(code: Code, flags: Iterable[Flag]) -> Iterator[PathUse]:
    """Yield calls of functions that know paths of the machine only, or need a library for others, with what the path begins with."""
    own = {node.name for node, _, module in code.each(ast.FunctionDef) if _is_method(node, module)}
    imported = {item.module.split(".")[0] for module in code.modules for item in module.imports}
    frames = _FRAME_WRITERS if "pandas" in imported and not imported & _OTHER_FRAMES else frozenset()
    # A trainer that tests how a path begins (`path.startswith("gs://")`) may map the path before it opens it. Such names are not
    # followed: only what is plain at the call itself is certain.
    tested = _tested_names(code)
    origins = _Origins(code, {flag.dest for flag in flags} - tested, tested)
    for call in code.calls:
        function = full_name(call.node.func, call.module)
        method = last_name(call.node.func) if isinstance(call.node.func, ast.Attribute) else ""
        of_object = method in _METHODS and dotted(call.node.func).partition(".")[0] not in call.module.aliases
        reads = function in _LOCAL_READERS or function in _PANDAS
        of_frame, hdf5 = method in frames, _saves_hdf5(call, function, code)
        of_object = of_object or of_frame or hdf5
        known = (of_object and method not in own) or ((reads or function in _WRITERS) and not _shadowed(call))
        position = 1 if hdf5 and KERAS_SAVE.fullmatch(function) else _WRITERS.get(function, 0)
        paths = _given_paths(call.node, position) if known else []
        used = call.module.parents.get(id(call.node))
        used_as = used.attr if isinstance(used, ast.Attribute) else ""
        if not paths or used_as in _TEXTS_OF_PATH or _for_local_paths(call, paths, code):
            continue
        # What a Trainer of its own does with the folder of its arguments is not known.
        if last_name(call.node.func) in _ARGUMENTS and any("save" in name for name in own):
            continue
        seen = set[Case]()
        for path in paths:
            for case in origins.cases(path, call.scope, call.module):
                if case not in seen:
                    seen.add(case)
                    writes = (
                        not reads or used_as in _WRITES_TO_PATH or _writes(call) or _is_written_to(used, call.module)
                    )
                    # `open` and `Path` are in both tables: in an output folder of the job they are taken to write
                    writes = writes or (function in _WRITERS and all(origin.variable for origin in case))
                    name = method if of_object and method else function
                    place = call.module.file, call.node.lineno
                    yield PathUse(name, case, writes, of_frame or function in _PANDAS, *place)


def _saves_hdf5(call: SourceCall, function: str, code: Code) -> bool:
    """Whether Keras saves a model to one file of HDF5, whose library knows paths of the machine only."""
    name, by_function = last_name(call.node.func), KERAS_SAVE.fullmatch(function) is not None
    is_method = name == "save" and isinstance(call.node.func, ast.Attribute)
    is_callback = name == "ModelCheckpoint" and "save_weights_only" not in call.keywords
    if not (by_function or is_method or is_callback):
        return False
    path = call.argument(1 if by_function else 0, "filepath")
    return (ending(path, call, code) or "").endswith(_HDF5)


_TEXTS_OF_PATH = frozenset({"name", "stem", "suffix", "suffixes", "parts"})
"""Attributes of a `Path` that only cut its text."""
_WRITES_TO_PATH = frozenset({"mkdir", "touch", "write_text", "write_bytes"})


def _is_written_to(statement: ast.AST | None, module: Module) -> bool:
    """Whether an assignment names a `Path` that the module makes or writes by that name."""
    if not isinstance(statement, ast.Assign):
        return False
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    uses = (node for node, _ in module.each(ast.Attribute) if node.attr in _WRITES_TO_PATH)
    return any(isinstance(node.value, ast.Name) and node.value.id in names for node in uses)


def _is_method(node: ast.FunctionDef, module: Module) -> bool:
    return isinstance(module.parents.get(id(node)), ast.ClassDef)


def _writes(call: SourceCall) -> bool:
    """Whether a call of `open`, or of h5py's `File`, names a mode that writes."""
    if last_name(call.node.func) not in {"open", "File"}:
        return False
    return bool(set(plain_text(call.argument(1, "mode")) or "") & set("wax+"))


class _Origins:
    """Follows a path to what it begins with.

    Args:
        code: The trainer.
        flags: The attributes of its flags.
        tested: Names that are not followed any further: the trainer looks at the scheme of what they hold.
    """

    def __init__(self, code: Code, flags: set[str], tested: set[str]) -> None:
        self.code, self.flags, self.tested = code, flags, tested
        self._steps = 0

    def cases(self, node: ast.expr | None, scope: Scope, module: Module, depth: int = 0) -> list[Case]:
        """Return the cases of a path; none where one of them is not plain."""
        self._steps = 0 if depth == 0 else self._steps + 1
        if node is None or depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            return []
        texts = self.code.texts(node, scope, module)
        if texts is not None:
            return [tuple(PathOrigin(text) for text in texts)]
        if name := variable(node):
            return [(PathOrigin(variable=name),)]
        if isinstance(node, ast.Constant):
            return [(PathOrigin(node.value),)] if isinstance(node.value, str) else []
        if isinstance(node, ast.Name):
            return self._name(node.id, scope, module, depth + 1)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope, module, depth + 1)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return self._any([(value, scope) for value in node.values], module, depth + 1)
        if isinstance(node, ast.IfExp):
            return self._any([(node.body, scope), (node.orelse, scope)], module, depth + 1)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return self._of_vars(node, str(node.slice.value), scope)
        definition = owned(node.func, module, self.code) if isinstance(node, ast.Call) else None
        if definition is not None:
            return self._returned(*definition, depth + 1)
        return self.cases(_beginning(node), scope, module, depth + 1)

    def _of_vars(self, node: ast.Subscript, name: str, scope: Scope) -> list[Case]:
        """Return the cases of `vars(args)["out"]`, also by a name."""
        made = bound(node.value, scope)
        is_vars = isinstance(made, ast.Call) and last_name(made.func) == "vars"
        return [(PathOrigin(flag=name),)] if is_vars and name in self.flags else []

    def _returned(self, function: Definition, module: Module, depth: int) -> list[Case]:
        """Return the cases of what a function of the trainer's own returns."""
        if not isinstance(function, FUNCTIONS):
            return []
        returned = [(node.value, scope) for node, scope in module.each(ast.Return) if scope.node is function]
        return self._any(returned, module, depth) if returned else []

    def _any(self, options: list[tuple[ast.expr | None, Scope]], module: Module, depth: int) -> list[Case]:
        """Return a list of one case, which has the origins of all the expressions; an empty list if one of them is not plain."""
        found = [self.cases(option, scope, module, depth) for option, scope in options]
        if not all(found):
            return []
        return [tuple(dict.fromkeys(origin for cases in found for case in cases for origin in case))]

    def _name(self, name: str, scope: Scope, module: Module, depth: int) -> list[Case]:
        for level in scope.levels():
            node = level.node
            if isinstance(node, FUNCTIONS) and name in parameter_names(node):
                if name in level.names or name in self.tested:
                    return []
                handed = self.code.handed(node, name, level, module) or []
                plain = [
                    one for one in handed[:_MAX_CASES] if one[0] is not None and not _in_both_branches(one[0], one[2])
                ]
                return [case for one in plain for case in self.cases(*one, depth)]
            if name in level.names and (level is scope or not isinstance(node, ast.ClassDef)):
                values = level.names[name]
                found = self._any([(one, level) for one in _where_set(values, module) or values], module, depth)
                return [case for case in found if name not in self.tested or not any(one.flag for one in case)]
        return []

    def _attribute(self, node: ast.Attribute, scope: Scope, module: Module, depth: int) -> list[Case]:
        owner = enclosing_class(scope) if dotted(node.value) in ("self", "cls") else None
        if owner is not None:
            values = owner.names.get(f"self.{node.attr}", []) + owner.names.get(node.attr, [])
            return self._any([(one, written_in(one, owner)) for one in values], module, depth) if values else []
        # `self.data_dir` may have the name of a flag and be something else: the object has to be that of the parsed flags
        made = bound(node.value, scope)
        parsed = isinstance(made, ast.Call) and last_name(made.func) == "parse_args"
        is_flag = node.attr in self.flags and (parsed or _NAMESPACES.fullmatch(ast.unparse(node.value)))
        return [(PathOrigin(flag=node.attr),)] if is_flag else []


def _in_both_branches(given: ast.expr, module: Module) -> bool:
    """Whether a call in the other branch of an `if` around an argument gets an equal one, as in `if local: load(p)` and `else: fetch(p)`:
    each of the two calls may be for another kind of path.
    """
    text, here = ast.dump(given), cast(ast.AST, given)
    while (parent := module.parents.get(id(here))) is not None and not isinstance(parent, FUNCTIONS):
        if isinstance(parent, ast.If) and here is not parent.test:
            other = parent.orelse if here in parent.body else parent.body
            calls = [part for statement in other for part in ast.walk(statement) if isinstance(part, ast.Call)]
            if any(ast.dump(one) == text for call in calls for one in call.args):
                return True
        here = parent
    return False


def _where_set(values: Sequence[ast.expr | None], module: Module) -> list[ast.expr | None]:
    """Return the lookup of an `AIP_…` variable among what a name is bound to, if it stands below a test of that variable."""
    for value in values:
        name = variable(value)
        here: ast.AST | None = value
        while name and here is not None:
            here = module.parents.get(id(here))
            if isinstance(here, ast.If) and name in _texts(here.test):
                return [value]
    return []


def _texts(node: ast.AST) -> set[object]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}


def _for_local_paths(call: SourceCall, paths: Sequence[ast.expr], code: Code) -> bool:
    """Whether a call may be reached only with a path that is not in a bucket, or only outside of Vertex AI: by a test such as
    `path.startswith("gs://")`, one that gives the path to a function of the trainer's own, or one of a variable that Vertex AI sets.
    """
    names = {part.id for path in paths for part in ast.walk(path) if isinstance(part, ast.Name)}
    parents, here = call.module.parents, cast(ast.AST, call.node)
    while (parent := parents.get(id(here))) is not None:
        if isinstance(parent, (ast.If, ast.IfExp)) and here is not parent.test:
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            bucket, in_body = _tests_bucket(parent.test, call), here in body
            if _is_tested(names, parent.test, call.module, code):
                return True
            if bucket is not None and in_body != bucket:
                return True
        block = next((one for _, one in ast.iter_fields(parent) if isinstance(one, list) and here in one), [])
        for before in block[: block.index(here)] if here in block else ():
            if isinstance(before, ast.If) and _tests_bucket(before.test, call) and isinstance(before.body[-1], _ENDS):
                return True
        if isinstance(parent, FUNCTIONS):
            return False
        here = parent
    return False


_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def _is_tested(names: set[str], test: ast.expr, module: Module, code: Code) -> bool:
    """Whether a function of the trainer's own decides by one of these names: what it looks at is not known."""
    for part in ast.walk(test):
        given = {one.id for one in part.args if isinstance(one, ast.Name)} if isinstance(part, ast.Call) else set()
        if names & given and isinstance(part, ast.Call) and owned(part.func, module, code) is not None:
            return True
    return False


def _tests_bucket(test: ast.expr, call: SourceCall) -> bool | None:
    """Whether a test holds for paths in a bucket, or on Vertex AI (True), or for all others (False); None if it does not look at that."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _tests_bucket(test.operand, call)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        return None
    texts = {*_texts(test)}
    texts |= {plain_text(bound(part, call.scope)) for part in ast.walk(test) if isinstance(part, ast.Name)}
    if not any(isinstance(text, str) and _TESTED.match(text) for text in texts):
        return None
    is_none = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and None in _texts(test.comparators[0])
    return not (is_none or (isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.NotEq, ast.NotIn))))


_TESTED = re.compile(r"\^?gs(?::|$)|://$|(?:AIP|CLOUD_ML)_\w+$")
"""A text that a test looks for in a path, or a variable that Vertex AI sets."""


def _given_paths(node: ast.Call, position: int) -> list[ast.expr]:
    """Return the argument of a call that is its path, by position or name."""
    named = [word.value for word in node.keywords if word.arg in _KEYWORDS]
    return [node.args[position]] if len(node.args) > position else named


def _shadowed(call: SourceCall) -> bool:
    """Whether the trainer has bound the first part of the function's name to something of its own."""
    # Only a name that is not imported can be the trainer's own: `open` of its own is a function that may know gs://.
    head = dotted(call.node.func).partition(".")[0]
    return head not in call.module.aliases and any(head in level.names for level in call.scope.levels())


def _beginning(node: ast.expr) -> ast.expr | None:
    """Return what a path expression begins with: `root` of `os.path.join(root, "x")`, `f"{root}/x"`, `root + "/x"` and `root.rstrip("/")`."""
    if isinstance(node, ast.JoinedStr) and node.values:
        first = node.values[0]
        return first.value if isinstance(first, ast.FormattedValue) else first
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        return node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"rstrip", "strip"}:
        return node.func.value
    if isinstance(node, ast.Call) and last_name(node.func) in {"join", "Path", "str", "fspath"} and node.args:
        return node.args[0]
    return None


def variable(node: ast.expr | None) -> str:
    """Return the `AIP_…` variable that an expression looks up in the environment, "" for anything else.

    An expression that takes something else only where the variable is not set counts, too.
    """
    name: ast.expr | None = None
    if isinstance(node, ast.Subscript) and dotted(node.value).endswith("environ"):
        name = node.slice
    elif isinstance(node, ast.Call) and last_name(node.func) in {"getenv", "get"} and node.args:
        name = node.args[0]
    elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return variable(node.values[0])
    elif isinstance(node, ast.IfExp):
        return found if (found := variable(node.body)) in _texts(node.test) else ""
    return str(name.value) if isinstance(name, ast.Constant) and name.value in _VARIABLES else ""


def ending(node: ast.expr | None, call: SourceCall, code: Code) -> str | None:
    """Return the text a path ends with; "" for a folder from the environment; None where that is not plain."""
    return _ending(node, call.scope, call, code, 0)


def _ending(node: ast.expr | None, scope: Scope, call: SourceCall, code: Code, depth: int) -> str | None:
    if node is None or depth > _MAX_DEPTH:
        return None
    if variable(node):
        return ""
    if isinstance(node, ast.Constant):
        return plain_text(node)
    # an f-string ends with its last part; a {value} there leaves the ending open
    if isinstance(node, ast.JoinedStr) and node.values:
        return plain_text(node.values[-1])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        return _ending(node.right, scope, call, code, depth + 1)
    if isinstance(node, ast.Call):
        joins = last_name(node.func) in {"join", "Path", "joinpath", "str"} and node.args
        return _ending(node.args[-1], scope, call, code, depth + 1) if joins else None
    values = code.texts(node, scope, call.module) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if values is not None:
        return values[0] if len(values) == 1 else None
    name = node.id if isinstance(node, ast.Name) else ""
    for level in scope.levels():
        if name in level.names:
            found = level.names[name]
            return _ending(found[0], level, call, code, depth + 1) if len(found) == 1 else None
    return None


_SCHEMES = ("gs", "gs:", "gs:/", _BUCKET, "://", "/gcs", "/gcs/")


def _tested_names(code: Code) -> set[str]:
    """Return the names and attributes whose scheme the trainer looks at, and those that it hands to functions which do.

    An address that is only put together, such as `f"gs://{bucket}"`, is no look at one.
    """
    constants: set[str] = set()
    looked_at: list[tuple[ast.AST, Module]] = []
    for text, node, module in code.texts_written:
        parent = module.parents.get(id(node))
        if text in _SCHEMES and isinstance(parent, ast.Assign):
            constants |= {target.id for target in parent.targets if isinstance(target, ast.Name)}
        elif text in _SCHEMES and not isinstance(parent, (ast.JoinedStr, ast.BinOp)):
            looked_at.append((node, module))
    looked_at += [(used, module) for used, _, module in code.each(ast.Name) if used.id in constants]
    scopes = {id(scope): (scope, module) for module in code.modules for _, scope in module.nodes}
    made: dict[str, list[ast.Call]] = {}  # `parts = urlparse(path)`, whose scheme is looked at
    taken: dict[str, list[tuple[FunctionNode, Scope, Module]]] = {}  # functions, by their parameters
    for scope, module in scopes.values():
        for name, values in scope.names.items():
            made.setdefault(name, []).extend(one for one in values if isinstance(one, ast.Call))
        function = scope.node
        for name in parameter_names(function) if isinstance(function, FUNCTIONS) else ():
            taken.setdefault(name, []).append((cast(FunctionNode, function), scope, module))
    found: set[str] = set()
    fresh = {name for node, module in looked_at for name in _names_beside(node, module)}
    while fresh:
        found |= fresh
        following: set[str] = set()
        for name in fresh:
            following = following.union(*map(_named, made.get(name, ())))
            for taker, scope, module in taken.get(name, ()):
                for given, *_ in code.handed(taker, name, scope, module) or ():
                    following |= _named(given)
        fresh = following - found
    return found


def _names_beside(node: ast.AST, module: Module) -> set[str]:
    """Return the names in the comparison or the call around an expression."""
    here: ast.AST | None = node
    while here is not None and not isinstance(here, (ast.Compare, ast.Call, ast.stmt)):
        here = module.parents.get(id(here))
    return _named(here) if isinstance(here, (ast.Compare, ast.Call)) else set()


def _named(node: ast.AST | None) -> set[str]:
    """Return the names and attributes of an expression, without the functions that it calls and the object of parsed flags."""
    parts = list(ast.walk(node)) if node is not None else []
    called = {id(part.func) for part in parts if isinstance(part, ast.Call)}
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute) and id(part) not in called}
    names = {part.id for part in parts if isinstance(part, ast.Name) and id(part) not in called}
    return attributes | {name for name in names if not _NAMESPACES.fullmatch(name)}


def mounts(code: Code) -> Iterator[SourcePlace]:
    """Yield each text that begins like a command line of gcsfuse."""
    for text, node, module in code.texts_written:
        if re.match(r"(?:sudo\s+)?(?:/\S*/)?gcsfuse(?:\s|$)", text):
            yield SourcePlace(module.file, node.lineno, "gcsfuse")


def names_gcsfs(code: Code, tree: Tree) -> bool:
    """Whether the trainer imports gcsfs, or what describes it names it."""
    if any(item.module.split(".")[0] == "gcsfs" for module in code.modules for item in module.imports):
        return True
    return any(GCSFS.search(tree.read(name) or b"") for name in _DESCRIPTIONS)
