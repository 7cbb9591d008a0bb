"""Trainers in every usual layout: what each says of itself, and the package that the container's pip installs."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from tests.support.packages import PLAIN, lay_out
from vertexrig.cli import run
from vertexrig.errors import PackageError
from vertexrig.package.builder import SetupRunsError, build
from vertexrig.package.sources import gather, identify
from vertexrig.trainer_source.reader import read

TASK = "import os\nRANK = int(os.environ['RANK'])\nfrom app import core\n"
APP = {"app/__init__.py": '__version__ = "3.4"\n', "app/task.py": TASK, "app/core.py": "", "app/words.txt": "a\n"}
PROJECT = '[project]\nname = "My.App"\nversion = "3.4"\ndependencies = ["tqdm>=4", "tf-keras"]\n'
SCM = '[build-system]\nrequires = ["hatchling", "hatch-vcs"]\nbuild-backend = "hatchling.build"\n'
DYNAMIC = '[project]\nname = "My.App"\ndynamic = ["version", "dependencies"]\n'
SETUPTOOLS = (
    DYNAMIC + "[tool.setuptools.packages.find]\nwhere = ['src']\n"
    "[tool.setuptools.dynamic]\nversion = {attr = 'app.__version__'}\ndependencies = {file = ['requirements.txt']}\n"
)
HATCH = DYNAMIC.replace(', "dependencies"', "") + 'dependencies = ["tqdm>=4", "tf-keras"]\n' + SCM
SHIM = "from setuptools import setup\nsetup()\n"
CFG = "[metadata]\nname = My.App\nversion = 3.4\n[options]\npackages = find:\ninstall_requires =\n    tqdm>=4\n    tf-keras\n"


# A project that only its build backend can describe; the backend is in the project, so that nothing is fetched.
BACKEND = {
    "pyproject.toml": """[tool.poetry]
name = "My.App"
version = "3.4"
[build-system]
requires = []
build-backend = "own"
backend-path = ["tools"]
""",
    "tools/own.py": """import os, zipfile
METADATA = '''Metadata-Version: 2.1
Name: My.App
Version: 3.4
Requires-Dist: tqdm>=4
Requires-Dist: tf-keras
Requires-Dist: rich ; extra == 'x'
Requires-Dist: ours @ file:///ours
'''
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(folder, "my_app-3.4-py3-none-any.whl"), "w") as wheel:
        for name in sorted(os.listdir("app")):
            wheel.write(f"app/{name}")
        wheel.writestr("my_app-3.4.dist-info/METADATA", METADATA)
        wheel.writestr("my_app-3.4.dist-info/entry_points.txt", "[console_scripts]\\nrun = app.task:main\\n")
    return "my_app-3.4-py3-none-any.whl"
""",
    **APP,
}


def under(root: str) -> dict[str, str]:
    return {f"{root}{name}": text for name, text in APP.items()}


LAYOUTS = {
    "project": {"pyproject.toml": PROJECT, **APP},
    "project in src": {"pyproject.toml": PROJECT, **under("src/"), "tools/__init__.py": "", "noxfile.py": ""},
    "project beside a setup.py of one call": {"pyproject.toml": PROJECT, "setup.py": SHIM, **APP},
    "project beside a setup.cfg with other requirements": {
        "pyproject.toml": PROJECT,
        "setup.cfg": "[options]\npackages = app\ninstall_requires =\n    rich\n",
        **APP,
    },
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
    "hatch with a computed version": {"pyproject.toml": HATCH, **APP},
    "setup.cfg alone": {"setup.cfg": CFG, **APP},
}


def members(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as packed:
        return {
            item.name.partition("/")[2]: (packed.extractfile(item) or open("/dev/null", "rb")).read().decode()
            for item in packed
        }


COMPUTED = ("setuptools with dynamic fields", "hatch with a computed version")
#: Those that pip installs here; the other layouts are installed by the rehearsals of test_rehearsed_layouts.py.
INSTALLED = ("project in src", "setup.cfg alone")


@pytest.mark.parametrize(
    ("layout", "installed"),
    [(name, name in INSTALLED) for name in LAYOUTS],
)
def test_a_layout_becomes_a_package_that_pip_installs_without_a_build_backend(
    tmp_path: Path, layout: str, installed: bool
) -> None:
    """Name, version, dependencies, modules and data come from the layout's own files; nothing of the trainer is run."""
    folder = lay_out(tmp_path / "f", LAYOUTS[layout])
    made = build(folder, tmp_path / "out", tf_version="2.17", module="app.task", verify=installed)
    version = "0" if layout in COMPUTED else "3.4"
    named = f"my_app-{version}+{made.id.digest}.tar.gz"
    assert made.id.file_name == named == identify(folder, tf_version="2.17").file_name
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


def test_the_python_of_what_only_a_build_backend_describes(tmp_path: Path) -> None:
    """Dynamic dependencies leave requires-python as it is: the image's pip would refuse the package."""
    files = {"pyproject.toml": SCM + DYNAMIC + 'requires-python = ">=3.12"\n', **APP}
    refusals = gather(lay_out(tmp_path / "f", files), "2.17").refusals
    assert any(">=3.12" in one and ">=3.10" in one for one in refusals)


def test_a_pyproject_that_only_configures_tools_changes_nothing(tmp_path: Path) -> None:
    """A formatter's table is no part of the package, nor of its hash."""
    files = {"setup.py": PLAIN, **APP}
    plain = identify(lay_out(tmp_path / "a", files))
    assert identify(lay_out(tmp_path / "b", {**files, "pyproject.toml": "[tool.black]\nline-length = 99\n"})) == plain


def test_what_only_a_build_backend_knows_is_built_by_it_once_the_user_has_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package holds the backend's wheel, with a setup.py, and its requirements held to the image; a change of either counts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    folder = lay_out(tmp_path / "f", BACKEND)
    with pytest.raises(SetupRunsError, match=r"\[tool.poetry\] of pyproject.toml.*vertexrig package --trust"):
        build(folder, tmp_path / "out", tf_version="2.17", module="app.task")
    made = build(folder, tmp_path / "out", tf_version="2.17", module="app.task", trusted=True)
    packed = members(made.path)
    assert made.id.file_name == f"my_app-3.4+{made.id.digest}.tar.gz" == identify(folder, tf_version="2.17").file_name
    assert {
        "setup.py",
        "app/task.py",
        "app/core.py",
        "app/words.txt",
    } <= packed.keys() and "pyproject.toml" not in packed
    requires = next(text for name, text in packed.items() if name.endswith(".egg-info/requires.txt"))
    assert requires.split() == ["tqdm>=4", "tf-keras~=2.17.0"] and "run = app.task:main" in packed["setup.cfg"]
    assert [one for one in made.warnings if "ours is a folder on this machine" in one]
    assert identify(folder, tf_version="2.16").digest != made.id.digest
    (folder / "pyproject.toml").write_text(f"{BACKEND['pyproject.toml']}# changed\n")
    assert identify(folder, tf_version="2.17").digest != made.id.digest


def test_data_files_between_the_modules_are_packaged(tmp_path: Path) -> None:
    """A backend that ships all of a package's files is matched: the text beside the module is in the archive."""
    made = build(lay_out(tmp_path / "f", LAYOUTS["project in src"]), tmp_path / "out", module="app.task", verify=False)
    assert members(made.path)["src/app/words.txt"] == "a\n"


def test_a_folder_without_any_description_is_packaged(tmp_path: Path) -> None:
    """Modules beside each other and a requirements.txt are enough; tests, notebooks and settings are left out."""
    files = {"train.py": "import helpers, yaml\n", "helpers.py": "", "requirements.txt": "-r more.txt\npyyaml  # x\n"}
    folder = lay_out(tmp_path / "f", {**files, "conftest.py": "", "docs/conf.py": "", "tests/test_x.py": ""})
    made = build(folder, tmp_path / "out", module="train")
    packed = members(made.path)
    assert {name for name in packed if name.endswith(".py")} == {"setup.py", "train.py", "helpers.py"}
    assert made.declared == ("yaml",) and made.id.file_name.startswith("trainer-0+")


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
    assert found.new_bytes.get("requirements.txt", b"").decode().strip() == (staged or "")


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


@pytest.mark.parametrize("layout", ["setuptools with dynamic fields", "backend"])
def test_a_project_table_stops_no_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """check, render and explain work on a trainer that pyproject.toml describes."""
    lay_out(tmp_path / "code", {**LAYOUTS, "backend": BACKEND}[layout])
    text = "project: my-project\nregion: us-central1\nbucket: gs://my-bucket\ntrainer: {path: code, module: app.task}\n"
    (tmp_path / "vertexrig.yaml").write_text(f"{text}jobs:\n  one: {{topology: cpu, machine_type: n1-standard-4}}\n")
    monkeypatch.chdir(tmp_path)
    assert [run([verb, "one"]) for verb in ("check", "render", "explain")] == [0, 0, 0]
    assert (
        f"packages/my_app-{0 if layout in COMPUTED else 3.4}+" in (tmp_path / "build" / "jobs" / "one.yaml").read_text()
    )


def test_a_script_exported_from_a_notebook(tmp_path: Path) -> None:
    """Lines that only run in a notebook are named with what to do; without them, or with a guard, it is packaged."""
    text = "import os\n\n# In[1]:\nget_ipython().system('pip install tqdm>=4 rich')\n%s\nprint('trained')\n"
    (tmp_path / "train.py").write_text(text % "get_ipython().run_line_magic('matplotlib', 'inline')")
    with pytest.raises(
        PackageError, match=r"train.py:4, 5: get_ipython.*Delete the lines; write tqdm>=4 and rich into requ"
    ):
        build(tmp_path / "train.py", tmp_path / "out", module="train")
    guarded = (
        "if 'get_ipython' in globals():\n    get_ipython().run_line_magic('matplotlib', 'inline')\nprint('trained')\n"
    )
    (tmp_path / "train.py").write_text(guarded)
    assert build(tmp_path / "train.py", tmp_path / "out", module="train", verify=False).fresh
