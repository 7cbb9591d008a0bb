"""Trainers in every usual layout: what each says of itself, and the package that the container's pip installs."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from tests.support.packages import PLAIN
from vertexrig.cli import run
from vertexrig.errors import PackageError
from vertexrig.package.builder import build
from vertexrig.package.sources import gather, identify
from vertexrig.trainer_source.reader import read

TASK = "import os\nRANK = int(os.environ['RANK'])\nfrom app import core\n"
APP = {"app/__init__.py": '__version__ = "3.4"\n', "app/task.py": TASK, "app/core.py": "", "app/words.txt": "a\n"}
PROJECT = '[project]\nname = "My.App"\nversion = "3.4"\ndependencies = ["tqdm>=4", "tf-keras"]\n'
SCM = '[build-system]\nrequires = ["hatchling", "hatch-vcs"]\nbuild-backend = "hatchling.build"\n'
POETRY = """[tool.poetry]
name = "My.App"
version = "3.4"
packages = [{include = "app", from = "src"}]
[tool.poetry.dependencies]
python = "^3.10"
tqdm = "^4.1"
tf-keras = "*"
[build-system]
requires = ["poetry-core"]
build-backend = "poetry.core.masonry.api"
"""
FLIT = '[tool.flit.metadata]\nmodule = "app"\ndist-name = "My.App"\nrequires = ["tqdm>=4", "tf-keras"]\n'
DYNAMIC = '[project]\nname = "My.App"\ndynamic = ["version", "dependencies"]\n'
SETUPTOOLS = (
    DYNAMIC + "[tool.setuptools.packages.find]\nwhere = ['src']\n"
    "[tool.setuptools.dynamic]\nversion = {attr = 'app.__version__'}\ndependencies = {file = ['requirements.txt']}\n"
)
HATCH = DYNAMIC.replace(', "dependencies"', "") + 'dependencies = ["tqdm>=4", "tf-keras"]\n' + SCM
HATCH += "[tool.hatch.version]\npath = 'app/__init__.py'\n[tool.hatch.build.targets.wheel]\npackages = ['app']\n"
SHIM = "from setuptools import setup\nsetup()\n"
CFG = "[metadata]\nname = My.App\nversion = 3.4\n[options]\npackages = find:\ninstall_requires =\n    tqdm>=4\n    tf-keras\n"


def under(root: str) -> dict[str, str]:
    return {f"{root}{name}": text for name, text in APP.items()}


LAYOUTS = {
    "project": {"pyproject.toml": PROJECT, **APP},
    "project in src": {"pyproject.toml": PROJECT, **under("src/"), "tools/__init__.py": "", "noxfile.py": ""},
    "project beside a setup.py of one call": {"pyproject.toml": PROJECT, "setup.py": SHIM, **APP},
    "project beside a whole setup.py": {
        "pyproject.toml": PROJECT,
        "setup.py": "from setuptools import find_packages, setup\nsetup(packages=find_packages(), package_data={'app': ['*.txt']})\n",
        **APP,
    },
    "setuptools with dynamic fields": {
        "pyproject.toml": SETUPTOOLS,
        "requirements.txt": "tqdm>=4\ntf-keras  # Keras 2\n",
        **under("src/"),
    },
    "hatch": {"pyproject.toml": HATCH, **APP},
    "poetry": {"pyproject.toml": POETRY, **under("src/")},
    "flit": {"pyproject.toml": FLIT, **APP},
    "setup.cfg alone": {"setup.cfg": CFG, **APP},
}


def lay_out(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def members(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as packed:
        return {
            item.name.partition("/")[2]: (packed.extractfile(item) or open("/dev/null", "rb")).read().decode()
            for item in packed
        }


#: Those that `make test` installs with pip, too.
INSTALLED = ("project in src", "poetry", "setup.cfg alone")


@pytest.mark.parametrize(
    ("layout", "installed"),
    [
        *((name, True) for name in INSTALLED),
        *((name, False) for name in LAYOUTS if name not in INSTALLED),
        *(pytest.param(name, True, marks=pytest.mark.whole) for name in LAYOUTS if name not in INSTALLED),
    ],
)
def test_a_layout_becomes_a_package_that_pip_installs_without_a_build_backend(
    tmp_path: Path, layout: str, installed: bool
) -> None:
    """Name, version, dependencies, modules and data come from the layout's own files; nothing of the trainer is run."""
    folder = lay_out(tmp_path / "f", LAYOUTS[layout])
    made = build(folder, tmp_path / "out", tf_version="2.17", module="app.task", verify=installed)
    assert made.id.file_name == f"my_app-3.4+{made.id.digest}.tar.gz" == identify(folder, tf_version="2.17").file_name
    packed = members(made.path)
    names = {name.removeprefix("src/") for name in packed}
    assert {"setup.py", "app/task.py", "app/core.py"} <= names and "pyproject.toml" not in names
    assert "noxfile.py" not in names and not any(name.startswith("tools/") for name in names)
    info = next(text for name, text in packed.items() if name.endswith(".egg-info/PKG-INFO"))
    assert "Name: My.App" in info or "Name: My-App" in info
    requires = next((text for name, text in packed.items() if name.endswith(".egg-info/requires.txt")), "")
    assert "tf-keras~=2.17.0" in requires.split() and len(requires.split()) == 2
    assert read(made.path, "app.task").problems == ()


@pytest.mark.parametrize(("wanted", "refused"), [(">=3.11", True), (">=3.10,<4", False), (">=3.9", False)])
def test_a_python_that_the_image_has_not_is_refused(tmp_path: Path, wanted: str, refused: bool) -> None:
    """The prebuilt image's pip would refuse the package at start-up; a custom image may have that Python."""
    text = f'{PROJECT}requires-python = "{wanted}"\n'
    folder = lay_out(tmp_path / "f", {"pyproject.toml": text, **APP})
    assert any(wanted in one and ">=3.10" in one for one in gather(folder, "2.17").refusals) is refused
    assert gather(folder, None).refusals == ()


def test_a_pyproject_that_only_configures_tools_changes_nothing(tmp_path: Path) -> None:
    """A formatter's table is no part of the package, nor of its hash."""
    files = {"setup.py": PLAIN, **APP}
    plain = identify(lay_out(tmp_path / "a", files))
    assert identify(lay_out(tmp_path / "b", {**files, "pyproject.toml": "[tool.black]\nline-length = 99\n"})) == plain


def test_data_files_between_the_modules_are_packaged(tmp_path: Path) -> None:
    """A backend that ships all of a package's files is matched: the text beside the module is in the archive."""
    made = build(lay_out(tmp_path / "f", LAYOUTS["poetry"]), tmp_path / "out", module="app.task", verify=False)
    assert members(made.path)["src/app/words.txt"] == "a\n"


def test_a_folder_without_any_description_is_packaged(tmp_path: Path) -> None:
    """Modules beside each other and a requirements.txt are enough; tests, notebooks and settings are left out."""
    files = {"train.py": "import helpers, yaml\n", "helpers.py": "", "requirements.txt": "-r more.txt\npyyaml  # x\n"}
    folder = lay_out(tmp_path / "f", {**files, "conftest.py": "", "docs/conf.py": "", "tests/test_x.py": ""})
    made = build(folder, tmp_path / "out", module="train")
    packed = members(made.path)
    assert {name for name in packed if name.endswith(".py")} == {"setup.py", "train.py", "helpers.py"}
    assert made.declared == ("yaml",) and made.id.file_name.startswith("trainer-0+")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('"^1.2.3"', "x>=1.2.3,<2"),
        ('"^0.3"', "x>=0.3,<0.4"),
        ('"^0"', "x>=0,<1"),
        ('"~1.2"', "x>=1.2,<1.3"),
        ('"~=1.2"', "x~=1.2"),
        ('"1.2"', "x==1.2"),
        ('">=1, <3"', "x>=1,<3"),
        ('"*"', "x"),
        ('{version = "^2", extras = ["a", "b"]}', "x[a,b]>=2,<3"),
        ('{version = "1", markers = "python_version < \'3.11\'"}', "x==1 ; python_version < '3.11'"),
        ('{git = "https://github.com/o/x.git", tag = "v1"}', "x @ git+https://github.com/o/x.git@v1"),
        ('{git = "git@github.com:o/x.git"}', "x @ git+ssh://git@github.com/o/x.git"),
        ('{url = "https://h/x.whl"}', "x @ https://h/x.whl"),
        ('{version = "1", optional = true}', None),
        ('{path = "../x"}', None),
    ],
)
def test_poetrys_ranges_become_ones_that_pip_reads(tmp_path: Path, written: str, expected: str | None) -> None:
    """`^`, `~`, links, extras and markers as Poetry writes them."""
    text = f'[tool.poetry]\nname = "a"\nversion = "1"\n[tool.poetry.dependencies]\nx = {written}\n'
    found = gather(lay_out(tmp_path / "f", {"pyproject.toml": text, **APP}), None)
    lines = found.rewritten["setup.cfg"].decode().splitlines()
    assert [line.strip() for line in lines if line.startswith("\tx")] == ([expected] if expected else [])
    assert bool(found.warnings) == ("path" in written)


def test_a_source_of_uv_is_carried_over(tmp_path: Path) -> None:
    """A git source becomes the requirement's URL; a folder of this machine is a warning that says what to do."""
    text = '[project]\nname = "a"\nversion = "1"\ndependencies = ["x>=1", "ours"]\n[tool.uv.sources]\n'
    text += 'x = {git = "https://github.com/o/x", rev = "abc"}\nours = {workspace = true}\n'
    found = gather(lay_out(tmp_path / "f", {"pyproject.toml": text, **APP}), None)
    assert [(item.name, item.pin) for item in found.requirements] == [("x", "@ git+https://github.com/o/x@abc")]
    assert "pyproject.toml:4: ours" in found.warnings[0] and "left out" in found.warnings[0]


URLS = [
    ("git+https://github.com/o/thing.git@v1#egg=thing", "thing", "thing @ git+https://github.com/o/thing.git@v1"),
    ("-e git+https://github.com/o/t.git#egg=thing", "thing", "thing @ git+https://github.com/o/t.git"),
    (
        "git+https://h/t#egg=thing&subdirectory=py",
        "thing",
        "thing @ git+https://h/t#subdirectory=py",
    ),
    ("thing @ git+https://github.com/o/t.git@main#subdirectory=a", "thing", None),
    ("git+https://github.com/o/thing.git@v1", "thing", None),
    ("https://h/thing-1.0-py3-none-any.whl", "thing", None),
]


@pytest.mark.parametrize(("line", "name", "staged"), URLS)
def test_a_requirement_from_a_url_is_known(tmp_path: Path, line: str, name: str, staged: str | None) -> None:
    """Its name is read, and one named by #egg= gets the form that install_requires takes."""
    found = gather(lay_out(tmp_path / "f", {"setup.py": PLAIN, "requirements.txt": f"{line}\n", **APP}), "2.17")
    assert [item.name for item in found.requirements] == [name]
    assert found.rewritten.get("requirements.txt", b"").decode().strip() == (staged or "")


def test_modules_of_requirements_from_urls_are_declared(tmp_path: Path) -> None:
    """The module of each counts as one that the requirements bring."""
    lines, imports = [], []
    for number, (line, name, _) in enumerate(URLS):
        own = re.sub(r"\bthing(?=\b)", f"thing{number}", line).replace("/t.git", f"/t{number}.git")
        lines.append(f"{own}\n")
        imports.append(f"{name}{number}")
    task = "".join(f"import {name}\n" for name in imports)
    files = {"setup.py": PLAIN, "requirements.txt": "".join(lines), "app/__init__.py": "", "app/task.py": task}
    made = build(lay_out(tmp_path / "f", files), tmp_path / "out", module="app.task", tf_version="2.17")
    assert sorted(made.declared) == imports


def test_an_import_that_an_unnamed_url_may_bring_is_only_warned_of(tmp_path: Path) -> None:
    """`git+https://…/CLIP.git` may bring any module: an import that nothing else brings is no error then."""
    files = {"setup.py": PLAIN, "requirements.txt": "git+https://github.com/o/CLIP.git\n", "app/__init__.py": ""}
    folder = lay_out(tmp_path / "f", {**files, "app/task.py": "import clip\nimport other\n"})
    made = build(folder, tmp_path / "out", module="app.task", tf_version="2.17")
    assert made.declared == ("clip",) and "app/task.py:2: imports other" in made.warnings[0]


@pytest.mark.parametrize("layout", ["project", "poetry", "setuptools with dynamic fields"])
def test_a_project_table_stops_no_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """check, render and explain work on a trainer that pyproject.toml describes."""
    lay_out(tmp_path / "code", LAYOUTS[layout])
    text = "project: my-project\nregion: us-central1\nbucket: gs://my-bucket\ntrainer: {path: code, module: app.task}\n"
    (tmp_path / "vertexrig.yaml").write_text(f"{text}jobs:\n  one: {{topology: cpu, machine_type: n1-standard-4}}\n")
    monkeypatch.chdir(tmp_path)
    assert [run([verb, "one"]) for verb in ("check", "render", "explain")] == [0, 0, 0]
    assert "packages/my_app-3.4+" in (tmp_path / "build" / "jobs" / "one.yaml").read_text()


def test_a_script_exported_from_a_notebook(tmp_path: Path) -> None:
    """Lines that only run in a notebook are named with what to do; without them, or with a guard, it is packaged."""
    text = "import os\n\n# In[1]:\nget_ipython().system('pip install tqdm>=4 rich')\n%s\nprint('trained')\n"
    (tmp_path / "train.py").write_text(text % "get_ipython().run_line_magic('matplotlib', 'inline')")
    with pytest.raises(
        PackageError, match=r"train.py:4, 5: get_ipython.*Delete the lines; write tqdm>=4 rich into requ"
    ):
        build(tmp_path / "train.py", tmp_path / "out", module="train")
    guarded = (
        "if 'get_ipython' in globals():\n    get_ipython().run_line_magic('matplotlib', 'inline')\nprint('trained')\n"
    )
    (tmp_path / "train.py").write_text(guarded)
    assert build(tmp_path / "train.py", tmp_path / "out", module="train", verify=False).fresh
