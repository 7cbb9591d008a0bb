"""Ports that a trainer listens on by itself, as far as their number is plain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import SourceCall, last_name
from vertexrig.trainer_source.trainer_model import Listener

_BY_POSITION = {
    **dict.fromkeys("bind HTTPServer ThreadingHTTPServer TCPServer ThreadingTCPServer create_server".split(), 0),
    **dict.fromkeys("start_http_server add_insecure_port add_secure_port listen launch".split(), 0),
    "start_server": 2,
}
"""Functions that listen, and which argument has the port: a number, `(host, port)`, or `"host:port"`."""
_BY_KEYWORD = frozenset(
    {"run", "start", "serve", "launch", "listen", "start_server", "start_http_server", "create_server"}
)
_OPTION = re.compile(r"(?:^|\s)--(?:\w+[-_])?port[=\s]\s*(\d+)\b")


def listeners(code: Code) -> Iterator[Listener]:
    """Yield every call that listens on a plain port, and every command line of a program with `--port`."""
    for call in code.calls:
        name = last_name(call.node.func)
        found = None
        position = _BY_POSITION.get(name)
        if position is not None and len(call.node.args) > position:
            found = _port(call.node.args[position], call, code, name)
        if found is None and name in _BY_KEYWORD:
            named = call.keywords.get("port")
            found = _number(named, call, code) if named is not None else None
        if found is None:
            found = _of_program(call)
        if found:
            yield Listener(found, f"{name}()", call.module.file, call.node.lineno)


def _port(node: ast.expr, call: SourceCall, code: Code, name: str) -> int | None:
    if isinstance(node, ast.Tuple) and len(node.elts) == 2:
        return _number(node.elts[1], call, code)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # gRPC's add_insecure_port and add_secure_port take "host:port"; a lone text of another function is a host or a
        # path.
        tail = node.value.rpartition(":")[2]
        return int(tail) if name.endswith("_port") and tail.isdecimal() else None
    return None if name == "listen" and not _is_debugger(call) else _number(node, call, code)


def _is_debugger(call: SourceCall) -> bool:
    """Whether a call is `debugpy.listen(5678)`, whose argument is a port: that of a socket's `listen(5)` is a queue length."""
    return isinstance(call.node.func, ast.Attribute) and last_name(call.node.func.value) == "debugpy"


def _number(node: ast.expr, call: SourceCall, code: Code) -> int | None:
    values = code.values(node, call.scope, call.module)
    return values[0] if values is not None and len(values) == 1 and isinstance(values[0], int) else None


def _of_program(call: SourceCall) -> int | None:
    """Return the port of `subprocess.Popen(["tensorboard", "--port", "6006"])`, or of the same as one text."""
    if last_name(call.node.func) not in {"Popen", "run", "call", "check_call", "system"} or not call.node.args:
        return None
    first = call.node.args[0]
    parts = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
    line = " ".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
    # Words that are computed are left out of the line: a port beside them is found all the same.
    found = _OPTION.search(line)
    return int(found[1]) if found else None
