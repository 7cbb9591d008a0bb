"""Where a trainer reads a `gs://` path with a function that needs more than the path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from vertexrig.package.source.astray import LOCAL, beginning, given_paths, shadowed, variable
from vertexrig.package.source.files import Tree
from vertexrig.package.source.model import Flag, PathRead
from vertexrig.package.source.names import Code, SourceCall, full_name

_LOCAL_READERS = frozenset({
    "open", "io.open", "numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "numpy.memmap", "torch.load",
    "torch.jit.load", "joblib.load", "PIL.Image.open", "h5py.File", "tarfile.open", "zipfile.ZipFile", "os.listdir",
    "os.scandir", "os.walk", "os.path.exists", "os.path.isdir", "os.path.isfile", "glob.glob", "pathlib.Path",
})  # fmt: skip
"""Functions that look for a file of the machine whatever the path begins with; the path is their first argument."""
# not read_parquet, which reads gs:// by pyarrow alone
_PANDAS = frozenset(f"pandas.read_{what}" for what in ("csv", "table", "json", "pickle", "excel", "feather", "fwf"))
_BUCKET = "gs://"
_NAMESPACES = re.compile(r"(?:\w+\.)*(?:args|opts?|options|flags|config|cfg|params|hparams|arguments)", re.IGNORECASE)
"""What a trainer calls the object that holds its flags."""
_DESCRIPTIONS = ("setup.py", "setup.cfg", "pyproject.toml", "requirements.txt")


def reads(code: Code, flags: Iterable[Flag]) -> Iterator[PathRead]:
    """Calls of such functions with a path that is plainly in a bucket, or that a flag of the trainer gives."""
    # A trainer that names gs:// may map such a path before it opens it: then only plain texts are certain.
    names = set() if _looks_at_schemes(code) else {flag.dest for flag in flags}
    for call in code.calls:
        function = full_name(call.node.func, call.module)
        if not (function in _LOCAL_READERS or function in _PANDAS) or shadowed(call):
            continue
        for path in given_paths(call.node, 0):
            source, flag = _origin(path, call, code, names)
            if flag or source.startswith(_BUCKET) or (source and function not in LOCAL):
                place = call.module.file, call.node.lineno
                yield PathRead(function, source, flag, function in _PANDAS, *place)


def _looks_at_schemes(code: Code) -> bool:
    """Whether the trainer tells paths in buckets from others by itself."""
    return any(text in ("gs", "gs:", "gs:/", _BUCKET) for text in code.constants)


def _origin(path: ast.expr, call: SourceCall, code: Code, flags: set[str]) -> tuple[str, str]:
    """The text that a path begins with or the `AIP_…` variable that holds it, and the flag it comes from."""
    first = beginning(path, call.scope)
    texts = code.texts(first, call.scope, call.module)
    if texts is not None:
        # with a local path among the possible values the read may be of that one
        return (texts[0] if all(text.startswith(_BUCKET) for text in texts) else ""), ""
    # `self.data_dir` may have the name of a flag and be something else: the object has to be named like parsed flags
    if isinstance(first, ast.Attribute) and first.attr in flags and _NAMESPACES.fullmatch(ast.unparse(first.value)):
        return "", first.attr
    return variable(first), ""


def names_gcsfs(code: Code, tree: Tree) -> bool:
    """Whether the trainer imports gcsfs, or what describes it names it."""
    if any(item.module.split(".")[0] == "gcsfs" for module in code.modules for item in module.imports):
        return True
    # the extra pandas[gcp] brings gcsfs
    return any(re.search(rb"\bgcsfs\b|pandas\[[^\]]*gcp", tree.read(name) or b"") for name in _DESCRIPTIONS)
