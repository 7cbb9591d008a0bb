"""Calls the hooks beside this file once the modules that they act on have been imported."""

from __future__ import annotations

import os
import sys

import vertexrig_devices  # type: ignore[import-not-found]  # beside this file
import vertexrig_images  # type: ignore[import-not-found]
import vertexrig_keys  # type: ignore[import-not-found]
import vertexrig_names  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any

_NAMES = vertexrig_names.VARIABLE
_HOOKS = {
    "tensorflow": vertexrig_devices.apply,
    "socket": vertexrig_names.apply,
    "uvloop": vertexrig_names.apply_to_uvloop,
    "google.auth._default": vertexrig_keys.apply_to_default,
    "google.auth._service_account_info": vertexrig_keys.apply_to_service_account,
    "google.cloud.client": vertexrig_keys.apply_to_client,
    "docker.api.image": vertexrig_images.apply,
}


def install() -> None:
    """Have each hook called whose variable is there."""
    for name, hook in _HOOKS.items():
        if not os.environ.get("TRAINER_VIRTUAL_DEVICES" if name == "tensorflow" else _NAMES):
            continue
        if name in sys.modules:
            hook()
        else:
            sys.meta_path.insert(0, _Finder(name))


class _Finder:
    """Finds a module as Python does, and calls its hook after it."""

    def __init__(self, name: str) -> None:
        self.name, self.busy = name, False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        # `find_spec` below asks this finder again.
        if name != self.name or self.busy:
            return None
        import importlib.util

        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _HOOKS[self.name]()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
