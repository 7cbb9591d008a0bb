"""Trainers in the layouts that people keep them in, from the project file to a rehearsal that ended well.

Each is packaged for its image and run by the local Vertex from that package, so what staging leaves out is missing here.
"""

from __future__ import annotations

import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.clouds_in_memory import Clock, MemoryStorage
from tests.support.packages import lay_out
from tests.support.tools import brief, need, vertexrig
from vertexrig.cli import run
from vertexrig.errors import PackageError
from vertexrig.package.sources import gather
from vertexrig.project import config
from vertexrig.submit import publish
from vertexrig.workspace import Workspace

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
HEAD = "project: my-project\nbucket: gs://my-project-vertexrig\n"
JOB = "{topology: cpu, machine_type: n1-standard-4, timeout: 600s%s}"
SCRIPT = "import argparse\nimport words\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=1)\n"
SCRIPT += "print('trained', words.WORD, p.parse_args().n)\n"
PYPROJECT = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n[project]\nname = "my-trainer"\nversion = "2.1"\n'
WITH_DATA = (
    "from importlib.resources import files\nfrom importlib.metadata import version\n"
    "print('trained', files('app').joinpath('data/words.txt').read_text().strip(), version('my-trainer'))\n"
)
SAYS = "from {}.words import WORD\nprint('trained', WORD)\n"


def project(trainer: str, jobs: str = f"one: {JOB % ''}") -> str:
    return f"{HEAD}trainer: {trainer}\njobs:\n  {jobs}\n"


def member(root: str, name: str) -> dict[str, str]:
    """A project of its own below a monorepo's root."""
    return {
        f"{root}/vertexrig.yaml": project(f"{{path: ., module: {name}.task}}"),
        f"{root}/pyproject.toml": PYPROJECT.replace("my-trainer", f"{name}-trainer"),
        f"{root}/src/{name}/__init__.py": "", f"{root}/src/{name}/words.py": f"WORD = '{name}'\n",
        f"{root}/src/{name}/task.py": SAYS.format(name),
    }  # fmt: skip


# name -> files, the project file, and what each job prints
LAYOUTS: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "a single script": (
        {"vertexrig.yaml": project("{path: train.py, module: train}", f"one: {JOB % ', args: {n: 3}'}"),
         "train.py": SCRIPT, "words.py": "WORD = 'script'\n"},
        "vertexrig.yaml", {"one": "trained script 3"},
    ),
    "pyproject.toml alone, src/ and package data": (
        {"vertexrig.yaml": project("{path: code, module: app.task}"), "code/pyproject.toml": PYPROJECT,
         "code/src/app/__init__.py": "", "code/src/app/task.py": WITH_DATA, "code/src/app/data/words.txt": "from a file\n"},
        "vertexrig.yaml", {"one": "trained from a file 2.1+"},
    ),
    "a monorepo with one project file and two trainers that share code": (
        {"vertexrig.yaml": project("{path: trainers}", f"vision: {JOB % ', module: vision.task'}\n  text: {JOB % ', module: text.task'}"),
         "trainers/vision/__init__.py": "", "trainers/vision/task.py": SAYS.format("shared"),
         "trainers/text/__init__.py": "", "trainers/text/task.py": SAYS.format("shared"),
         "trainers/shared/__init__.py": "", "trainers/shared/words.py": "WORD = 'shared'\n"},
        "vertexrig.yaml", {"text": "trained shared"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", brief([*LAYOUTS], 2))
@pytest.mark.whole
def test_a_layout_is_packaged_and_rehearsed(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`package` builds it, and `rehearse` runs from that package what the job names."""
    files, project_file, jobs = LAYOUTS[layout]
    file = lay_out(tmp_path, files) / project_file
    monkeypatch.chdir(tmp_path)
    for name, says in jobs.items():
        assert run(["package", name, "--file", project_file]) == 0, capsys.readouterr().err
        assert run(["rehearse", name, "--file", project_file, "--format", "json"]) == 0, capsys.readouterr().err
        assert f"workerpool0-0 | {says}" in capsys.readouterr().err
    assert len(list(file.parent.glob("build/packages/*.tar.gz"))) == 1


@pytest.mark.whole
def test_an_upload_holds_every_module_that_is_run_from_it(tmp_path: Path) -> None:
    """A job's own module, and not the project's, is looked for in the package that is uploaded for it."""
    files, _, _ = LAYOUTS["a monorepo with one project file and two trainers that share code"]
    workspace = Workspace(config.load(lay_out(tmp_path, files) / "vertexrig.yaml"))
    storage = MemoryStorage(Clock())
    (uri,) = publish.upload_packages(workspace, ["vision", "text"], storage)
    assert uri.rpartition("/")[2] in " ".join(storage.objects)
    (tmp_path / "trainers/text/task.py").unlink()
    with pytest.raises(PackageError, match=r"text\.task"):
        publish.upload_packages(Workspace(workspace.loaded), ["vision", "text"], storage)


def test_two_trainers_of_a_monorepo_have_packages_of_their_own(tmp_path: Path) -> None:
    """A change of one trainer leaves the other's package, and so its queued trials, as they were."""
    lay_out(tmp_path, {**member("vision", "seeing"), **member("text", "reading")})

    def names() -> list[str]:
        found = []
        for root in ("vision", "text"):
            workspace = Workspace(config.load(tmp_path / root / "vertexrig.yaml"))
            (uri,) = workspace.prepare("one").document.pools[0].program["packageUris"]
            found.append(uri.rpartition("/")[2])
        return found

    before = names()
    assert before[0].startswith("seeing_trainer-2.1+") and before[1].startswith("reading_trainer-2.1+")
    (tmp_path / "text/src/reading/words.py").write_text("WORD = 'new'\n")
    after = names()
    assert after[0] == before[0] and after[1] != before[1]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index on loopback with one distribution that PyPI has not."""
    folder = tmp_path / "index/simple/vertexrig-test-inhouse"
    folder.mkdir(parents=True)
    wheel = "vertexrig_test_inhouse-1.0-py3-none-any.whl"
    info = "vertexrig_test_inhouse-1.0.dist-info"
    with zipfile.ZipFile(folder / wheel, "w") as archive:
        archive.writestr("vertexrig_test_inhouse.py", "WORD = 'in house'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: vertexrig-test-inhouse\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()


@pytest.mark.whole
def test_a_private_index(tmp_path: Path, index: str) -> None:
    """A package cannot name an index: building says so with what to do. A rehearsal takes it from pip's own variable, and
    the lock file of the trainer's own image has it, with hashes.
    """
    need("uv")
    files = {
        "vertexrig.yaml": project("{path: train.py, module: train}"),
        "train.py": "import vertexrig_test_inhouse as ours\nprint('trained', ours.WORD)\n",
        "requirements.txt": f"--extra-index-url {index}\nvertexrig-test-inhouse==1.0\n",
    }
    folder = lay_out(tmp_path / "work", files)
    built = vertexrig("package", "one", cwd=folder)
    assert built.returncode == 0, built.stderr
    assert (
        f"requirements.txt:1: the package cannot name the index {index}" in built.stderr
        and "`image: build`" in built.stderr
    )

    ran = vertexrig("rehearse", "one", cwd=folder, env={"PIP_EXTRA_INDEX_URL": index})
    assert ran.returncode == 0 and "workerpool0-0 | trained in house" in ran.stderr + ran.stdout, ran.stderr

    own = f"{{path: train.py, module: train, image: build, build: {{python: '{PYTHON}'}}}}"
    (folder / "vertexrig.yaml").write_text(project(own))
    made = vertexrig("image", "one", cwd=folder)
    assert made.returncode == 0, made.stderr
    lock = (folder / "locks/trainer-cpu.txt").read_text()
    assert f"--extra-index-url {index}" in lock and "vertexrig-test-inhouse==1.0 \\\n    --hash=sha256:" in lock


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"pyproject.toml": f'{PYPROJECT}[[tool.uv.index]]\nname = "ours"\nurl = "https://pypi.example.com/simple"\n'}, "pyproject.toml:9"),
        ({"pyproject.toml": f'{PYPROJECT}[[tool.poetry.source]]\nname = "ours"\nurl = "https://pypi.example.com/simple"\n'}, "pyproject.toml:9"),
        ({"requirements.txt": "-i https://me:secret@pypi.example.com/simple\n"}, "requirements.txt:1"),
    ],
)  # fmt: skip
def test_an_index_is_named_where_it_is_written(tmp_path: Path, files: dict[str, str], place: str) -> None:
    """uv's, Poetry's and pip's own way to name one give a warning with the place, and no password."""
    folder = lay_out(tmp_path, {**files, "app/__init__.py": "", "app/task.py": ""})
    (warning,) = gather(folder, "2.17").warnings
    assert (
        warning.startswith(f"{place}: the package cannot name the index https://")
        and "pypi.example.com/simple, so pip in a prebuilt container does not use it" in warning
    )
    assert "secret" not in warning


def test_pypi_itself_is_no_private_index(tmp_path: Path) -> None:
    """Pip asks it anyway, so naming it gives no warning."""
    files = {
        "requirements.txt": "--index-url https://pypi.org/simple\ntqdm\n",
        "app/__init__.py": "",
        "app/task.py": "",
    }
    assert gather(lay_out(tmp_path, files), "2.17").warnings == ()
