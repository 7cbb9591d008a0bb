"""What triggered runs use: the trainer's packages and images, put where the trigger finds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping

from vertexrig import times
from vertexrig.cloud.storage import Storage
from vertexrig.package import builder
from vertexrig.project.config import PACKAGES_FOLDER
from vertexrig.submit import images
from vertexrig.submit.uploaded import PACKAGES, pointer
from vertexrig.workspace import Workspace


def upload_packages(workspace: Workspace, names: Iterable[str], storage: Storage) -> list[str]:
    """Build and upload the trainer packages of jobs or sweeps for triggered runs; URIs of all, also of those there already."""
    wanted: dict[str | None, set[str]] = {}
    for name in names:
        view = workspace.renderer.view(name)
        for pool in filter(None, view.pools.values()):
            for tf_version, uri in view.own_packages.items():
                if uri in pool.package_uris:
                    wanted.setdefault(tf_version, set()).add(pool.python_module)
    return upload(workspace, wanted, storage)


def publish(workspace: Workspace, names: Iterable[str], storage: Storage) -> list[str]:
    """Make packages and images of jobs or sweeps the ones of triggered runs; URIs of all. NoImageError if an image is missing."""
    names = list(names)
    return [
        *images.record(workspace, names, storage),
        *upload_packages(workspace, names, storage),
    ]


def upload(workspace: Workspace, wanted: Mapping[str | None, Collection[str]], storage: Storage) -> list[str]:
    """Build and upload the trainer packages for TensorFlow versions, each with the modules that jobs run from it; return their URIs."""
    trainer = workspace.loaded.project.trainer
    done = []
    for tf_version, modules in wanted.items():
        uri = workspace.renderer.artifacts.package(tf_version)
        object_name = f"{PACKAGES}{uri.rsplit('/', 1)[-1]}"
        folder, out = workspace.loaded.path(trainer.path, "trainer", "path"), workspace.loaded.output(PACKAGES_FOLDER)
        for module in sorted(modules):  # each of them has to be in it
            built = builder.build(folder, out, tf_version=tf_version, module=module, most_mib=trainer.package_mib)
        content = built.path.read_bytes()
        found = storage.read(object_name)
        # named by its content, so other bytes under the name are damage, and are replaced
        generation = (
            found.generation
            if found is not None and found.data == content
            else storage.write(object_name, content, content_type="application/gzip")
        )
        sha256 = hashlib.sha256(content).hexdigest()
        now = times.rfc3339(times.now(), 0)
        row = {
            "uri": uri,
            "sha256": sha256,
            "generation": generation,
            "tf_version": tf_version,
            "module": trainer.module,
            "uploaded": now,
        }
        # the pointer last: until then triggered runs use the package before
        storage.write(pointer(workspace.loaded, tf_version), json.dumps(row, indent=1).encode())
        done.append(uri)
    return done
