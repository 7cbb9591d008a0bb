"""What a trainer does with `gs://` paths: those it opens as if they were local, whose writes are lost with the machine, and
those it reads with a function that needs more than the path.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import cast

from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import FUNCTIONS, Scope, SourceCall, dotted, full_name, last_name, single_binding
from vertexrig.trainer_source.source_tree import Tree
from vertexrig.trainer_source.trainer_model import Flag, PathRead, SourcePlace

_VARIABLES = frozenset({"AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"})
_LOCAL = {
    **dict.fromkeys("open io.open os.makedirs os.mkdir pathlib.Path numpy.save numpy.savez numpy.savetxt".split(), 0),
    **dict.fromkeys("joblib.dump torch.save shutil.copy shutil.copyfile shutil.copytree shutil.move".split(), 1),
}
"""Functions that know local paths only, and which of their arguments is the path."""
_KEYWORDS = ("file", "name", "path", "filename", "fname", "f", "dst", "filepath_or_buffer", "io", "path_or_buf", "fp")
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
_DESCRIPTIONS = ("setup.py", "setup.cfg", "pyproject.toml", "requirements.txt")

_MAX_DEPTH = 8


def local_writes(code: Code) -> Iterator[SourcePlace]:
    """Yield calls of the functions in `_LOCAL` with the value of an `AIP_…` variable, which is a gs:// path."""
    for call in code.calls:
        name = full_name(call.node.func, call.module)
        if name in _LOCAL and not _shadowed(call) and not _for_local_paths(call):
            paths = _given_paths(call.node, _LOCAL[name])
            if any(variable(_beginning(path, call.scope)) for path in paths):
                yield SourcePlace(call.module.file, call.node.lineno, f"{name}()")


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


def _beginning(node: ast.expr, scope: Scope, depth: int = 0) -> ast.expr:
    """Return what a path expression begins with: `root` of `os.path.join(root, "x")`, `f"{root}/x"` and `root + "/x"`.

    A name that is bound to one expression is that expression.
    """
    inner: ast.expr | None = None
    if isinstance(node, ast.JoinedStr) and node.values:
        first = node.values[0]
        inner = first.value if isinstance(first, ast.FormattedValue) else first
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        inner = node.left
    elif isinstance(node, ast.Call) and last_name(node.func) in {"join", "Path", "str"} and node.args:
        inner = node.args[0]
    elif isinstance(node, ast.Name):
        inner = single_binding(node.id, scope)
    return node if inner is None or depth > _MAX_DEPTH else _beginning(inner, scope, depth + 1)


def variable(node: ast.expr) -> str:
    """Return the `AIP_…` variable that an expression looks up in the environment, "" for anything else."""
    name: ast.expr | None = None
    if isinstance(node, ast.Subscript) and dotted(node.value).endswith("environ"):
        name = node.slice
    elif isinstance(node, ast.Call) and last_name(node.func) in {"getenv", "get"} and node.args:
        name = node.args[0]
    return str(name.value) if isinstance(name, ast.Constant) and name.value in _VARIABLES else ""


def reads(code: Code, flags: Iterable[Flag]) -> Iterator[PathRead]:
    """Yield calls of the functions in `_LOCAL_READERS` or `_PANDAS` with a path that is plainly in a bucket, or that a flag gives."""
    # A trainer that names gs:// may map such a path before it opens it: then only plain texts are certain.
    names = set() if _looks_at_schemes(code) else {flag.dest for flag in flags}
    for call in code.calls:
        function = full_name(call.node.func, call.module)
        if not (function in _LOCAL_READERS or function in _PANDAS) or _shadowed(call):
            continue
        for path in _given_paths(call.node, 0):
            source, flag = _origin(path, call, code, names)
            if flag or source.startswith(_BUCKET) or (source and function not in _LOCAL):
                place = call.module.file, call.node.lineno
                yield PathRead(function, source, flag, function in _PANDAS, *place)


def _looks_at_schemes(code: Code) -> bool:
    """Whether the trainer tells paths in buckets from others by itself."""
    return any(text in ("gs", "gs:", "gs:/", _BUCKET) for text, _, _ in code.texts_written)


def _origin(path: ast.expr, call: SourceCall, code: Code, flags: set[str]) -> tuple[str, str]:
    """Return the text that a path begins with or the `AIP_…` variable that holds it, and the flag it comes from."""
    first = _beginning(path, call.scope)
    texts = code.texts(first, call.scope, call.module)
    if texts is not None:
        # with a local path among the possible values the read may be of that one
        return (texts[0] if all(text.startswith(_BUCKET) for text in texts) else ""), ""
    # `self.data_dir` may have the name of a flag and be something else: the object has to be named like parsed flags
    if isinstance(first, ast.Attribute) and first.attr in flags and _NAMESPACES.fullmatch(ast.unparse(first.value)):
        return "", first.attr
    return variable(first), ""


def mounts(code: Code) -> Iterator[SourcePlace]:
    """Yield each text that begins like a command line of gcsfuse."""
    for text, node, module in code.texts_written:
        if re.match(r"(?:sudo\s+)?(?:/\S*/)?gcsfuse(?:\s|$)", text):
            yield SourcePlace(module.file, node.lineno, "gcsfuse")


def names_gcsfs(code: Code, tree: Tree) -> bool:
    """Whether the trainer imports gcsfs, or what describes it names it."""
    if any(item.module.split(".")[0] == "gcsfs" for module in code.modules for item in module.imports):
        return True
    # the extra pandas[gcp] brings gcsfs
    return any(re.search(rb"\bgcsfs\b|pandas\[[^\]]*gcp", tree.read(name) or b"") for name in _DESCRIPTIONS)
