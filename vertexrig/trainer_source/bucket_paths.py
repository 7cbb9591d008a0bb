"""What a trainer does with `gs://` paths: those it opens as if they were local, whose writes are lost with the machine, and
those it reads with a function that needs more than the path.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import cast

from vertexrig.trainer_source.code import Code, written_in
from vertexrig.trainer_source.modules import (
    FUNCTIONS,
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
_WRITERS = {
    **dict.fromkeys("open io.open os.makedirs os.mkdir pathlib.Path numpy.save numpy.savez numpy.savetxt".split(), 0),
    **dict.fromkeys("matplotlib.pyplot.savefig logging.FileHandler cv2.imwrite".split(), 0),
    **dict.fromkeys("transformers.TrainingArguments transformers.Seq2SeqTrainingArguments".split(), 0),
    **dict.fromkeys("joblib.dump torch.save shutil.copy shutil.copyfile shutil.copytree shutil.move".split(), 1),
}
"""Functions that write to a path of the machine, and which of their arguments it is."""
_METHODS = frozenset({"save_model", "save_pretrained"})
"""Methods of XGBoost, LightGBM, CatBoost and Transformers that write to a path of the machine, their first argument."""
_KEYWORDS = (
    "file", "name", "path", "filename", "fname", "f", "dst", "filepath_or_buffer", "io", "path_or_buf", "fp", "output_dir",
    "save_directory",
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
_BUCKET = "gs://"
_NAMESPACES = re.compile(r"(?:\w+\.)*(?:args|opts?|options|flags|config|cfg|params|hparams|arguments)", re.IGNORECASE)
"""What a trainer calls the object that holds its flags."""
GCSFS = re.compile(rb"\bgcsfs\b|pandas\[[^\]]*gcp")
"""A requirement that brings gcsfs; the extra pandas[gcp] does, too."""
_DESCRIPTIONS = ("setup.py", "setup.cfg", "pyproject.toml", "requirements.txt")
_MAX_DEPTH = 8
_MAX_CASES = 16

Case = tuple[PathOrigin, ...]
"""What a path may begin with in one case, such as one call of the function that it is handed to: each of these is possible."""


def path_uses(code: Code, flags: Iterable[Flag]) -> Iterator[PathUse]:
    """Yield calls of functions that know paths of the machine only, or need a library for others, with what the path begins with."""
    # A trainer that names gs:// may map such a path before it opens it: then only what is plain beside the call is certain.
    plain = _looks_at_schemes(code)
    origins = _Origins(code, set() if plain else {flag.dest for flag in flags}, follows=not plain)
    for call in code.calls:
        function = full_name(call.node.func, call.module)
        method = last_name(call.node.func) if isinstance(call.node.func, ast.Attribute) else ""
        of_object = method in _METHODS and dotted(call.node.func).partition(".")[0] not in call.module.aliases
        reads = function in _LOCAL_READERS or function in _PANDAS
        known = of_object or ((reads or function in _WRITERS) and not _shadowed(call))
        if not known or _for_local_paths(call):
            continue
        seen = set[Case]()
        for path in _given_paths(call.node, _WRITERS.get(function, 0)):
            for case in origins.cases(path, call.scope, call.module):
                if case not in seen:
                    seen.add(case)
                    writes = not reads or (function in _WRITERS and (_writes(call) or all(o.is_variable for o in case)))
                    name = method if of_object else function
                    place = call.module.file, call.node.lineno
                    yield PathUse(name, case, writes, function in _PANDAS, *place)


def _writes(call: SourceCall) -> bool:
    """Whether a call of `open` names a mode that writes."""
    mode = call.keywords.get("mode") or (call.node.args[1] if len(call.node.args) > 1 else None)
    return bool(set(plain_text(mode) or "") & set("wax+"))


class _Origins:
    """Follows a path to what it begins with.

    Args:
        code: The trainer.
        flags: The attributes of its flags.
        follows: Whether it is followed through the parameters of functions, too.
    """

    def __init__(self, code: Code, flags: set[str], *, follows: bool) -> None:
        self.code, self.flags, self.follows = code, flags, follows

    def cases(self, node: ast.expr | None, scope: Scope, module: Module, depth: int = 0) -> list[Case]:
        """Return the cases of a path; none where one of them is not plain."""
        if node is None or depth > _MAX_DEPTH:
            return []
        texts = self.code.texts(node, scope, module)
        if texts is not None:
            return [tuple(PathOrigin(text) for text in texts)]
        if name := variable(node):
            return [(PathOrigin(name),)]
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
        return self.cases(_beginning(node), scope, module, depth + 1)

    def _any(self, options: list[tuple[ast.expr | None, Scope]], module: Module, depth: int) -> list[Case]:
        """Return the one case in which each of the expressions is possible."""
        found = [self.cases(option, scope, module, depth) for option, scope in options]
        if not all(found):
            return []
        return [tuple(dict.fromkeys(origin for cases in found for case in cases for origin in case))]

    def _name(self, name: str, scope: Scope, module: Module, depth: int) -> list[Case]:
        for level in scope.levels():
            node = level.node
            if isinstance(node, FUNCTIONS) and name in parameter_names(node):
                if name in level.names or not self.follows:
                    return []
                handed = self.code.handed(node, name, level, module) or []
                return [case for one in handed[:_MAX_CASES] for case in self.cases(*one, depth)]
            if name in level.names and (level is scope or not isinstance(node, ast.ClassDef)):
                return self._any([(value, level) for value in level.names[name]], module, depth)
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


def _for_local_paths(call: SourceCall) -> bool:
    """Whether a call is only reached with a path that is not in a bucket, by a test such as `path.startswith("gs://")`."""
    parents, here = call.module.parents, cast(ast.AST, call.node)
    while (parent := parents.get(id(here))) is not None:
        if isinstance(parent, (ast.If, ast.IfExp)) and here is not parent.test:
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            bucket, in_body = _tests_bucket(parent.test), here in body
            if bucket is not None and in_body != bucket:
                return True
        block = next((one for _, one in ast.iter_fields(parent) if isinstance(one, list) and here in one), [])
        for before in block[: block.index(here)] if here in block else ():
            if isinstance(before, ast.If) and _tests_bucket(before.test) and isinstance(before.body[-1], _ENDS):
                return True
        if isinstance(parent, FUNCTIONS):
            return False
        here = parent
    return False


_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def _tests_bucket(test: ast.expr) -> bool | None:
    """Whether a test holds for paths in a bucket (True) or for all others (False); None if it does not look at that."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _tests_bucket(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        return None
    texts = [part.value for part in ast.walk(test) if isinstance(part, ast.Constant)]
    if not any(isinstance(text, str) and re.match(r"\^?gs(:|$)", text) for text in texts):
        return None
    negated = isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.NotEq, ast.NotIn))
    return not negated


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
        names = {part.value for part in ast.walk(node.test) if isinstance(part, ast.Constant)}
        return found if (found := variable(node.body)) in names else ""
    return str(name.value) if isinstance(name, ast.Constant) and name.value in _VARIABLES else ""


def _looks_at_schemes(code: Code) -> bool:
    """Whether the trainer tells paths in buckets from others by itself."""
    return any(text in ("gs", "gs:", "gs:/", _BUCKET, "/gcs", "/gcs/") for text, _, _ in code.texts_written)


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
