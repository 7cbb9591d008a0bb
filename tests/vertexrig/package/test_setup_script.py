"""A trainer's setup.py runs only if it is a list of values, or the user has allowed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.checkout.hostile import MODULES
from tests.support.packages import PLAIN, SETUP, small
from vertexrig.package.builder import SetupRunsError, build
from vertexrig.package.setup_script import read_setup
from vertexrig.package.sources import gather

HEAD = "from setuptools import find_packages, setup\n"
READ = [
    ("setup(name='t', packages=find_packages(exclude=['x*']))", {"name": "t", "packages": [["x*"]]}),
    ("N = 't'\nR = ['a']\nsetup(name=N, install_requires=R)", {"name": "t", "install_requires": ["a"]}),
    ("if __name__ == '__main__':\n    setup(version='1')", {"version": "1"}),
    ("import setuptools\nsetuptools.setup(packages=setuptools.find_packages())", {"packages": []}),
]
NOT_READ = [
    "import os\nos.system('touch caught')\nsetup(name='t')",
    "__import__('os').system('touch caught')",
    "().__class__.__base__.__subclasses__()\nsetup(name='t')",
    "setup(name='{0.__class__}'.format(1))",
    "eval('1')\nsetup()",
    "setup(name='t', cmdclass={'sdist': object})",
    "setup(name='t', setup_requires=['evil'])",
    "setup(name='t', data_files=[('x', ['/etc/passwd'])])",
    "setup(name='t', package_data={'': ['../../secret']})",
    "setup(name='t', packages=find_packages('/'))",
    "setup(long_description=open('/etc/passwd').read())",
    "setup(long_description=open('README.md').read())",
    "from trainer.version import __version__\nsetup(version=__version__)",
    "setup('x', name='t')",
    "class C: pass\nsetup(name='t')",
    "setup(**{'name': 't'}, **open)",
    "x = 'a'\n" + "x = x + x\n" * 60 + "setup(name=x)",
    "x = ['a']\n" + "x = [x, x]\n" * 60 + "setup(keywords=x)",
    "def f():\n    return f() + f()\nsetup(name=f())",
    "x = f'{1}'\n" + "x = f'{x}{x}'\n" * 60 + "setup(name=x)",
    "x = [0]\nx = [[a for a in x] for b in x]\nsetup(name='t')",
    "while True: pass",
    "def setup_later():\n    setup(name='t')",
]


@pytest.mark.parametrize(("script", "given"), READ)
def test_a_script_of_values_is_read(script: str, given: dict[str, object]) -> None:
    """What it gives setup() is known, and it needs no permission to run."""
    assert read_setup((HEAD + script).encode()) == (given, "")


@pytest.mark.parametrize("script", NOT_READ)
def test_anything_else_needs_permission(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that does more is named with the reason at once, and none of it runs."""
    monkeypatch.chdir(tmp_path)
    assert read_setup((HEAD + script).encode())[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "config",
    [
        "[options]\ncmdclass =\n    sdist = trainer.task.Evil\n",
        "[options]\nsetup_requires = evil\n",
        "[metadata]\nversion = attr: trainer.task.computed\n",
        "[options.package_data]\n* = ../../secret\n",
        "[options.data_files]\nx = /etc/passwd\n",
    ],
)
def test_a_setup_cfg_that_runs_code_or_leads_out_is_asked_about(tmp_path: Path, config: str) -> None:
    """A setup.cfg can name code and places outside as a script can, and is held to the same."""
    folder = small(tmp_path / "f", "computed = str(1)\n", files={"setup.cfg": config})
    assert "setup.cfg" in gather(folder, None).unsafe


def test_a_script_runs_only_once_the_user_has_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that has to run is named with what to type; allowed once, it runs until it changes, and then it is asked again."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    ran = tmp_path / "ran"
    folder = small(tmp_path / "f", setup=f"open({str(ran)!r}, 'a').write('x')\n" + PLAIN)
    with pytest.raises(SetupRunsError, match="vertexrig package --trust"):
        build(folder, tmp_path / "out", verify=False)
    assert not ran.exists()
    assert build(folder, tmp_path / "out", verify=False, trusted=True).fresh and ran.exists()
    (folder / "trainer" / "task.py").write_text("x = 2\n")
    assert build(folder, tmp_path / "out", verify=False).fresh
    ran.unlink()
    (folder / "setup.py").write_text(f"open({str(ran)!r}, 'a').write('y')\n" + PLAIN)
    with pytest.raises(SetupRunsError):
        build(folder, tmp_path / "out", verify=False)
    assert not ran.exists()


@pytest.mark.parametrize(
    "description",
    [
        {"setup.py": HEAD + "setup(name='t', packages=find_packages(), py_modules=['tarfile', 'json'])"},
        {"setup.py": "from setuptools import setup\nsetup()\n", "setup.cfg": "[options]\npackages = find:\n"},
        {},
    ],
    ids=["setup.py", "setup.cfg", "modules"],
)
def test_no_module_of_the_folder_takes_the_place_of_python_s(tmp_path: Path, description: dict[str, str]) -> None:
    """A package that is built without being asked about runs no module of the folder, whatever modules are there."""
    ran = tmp_path / "ran"
    evil = f"open({str(ran)!r}, 'a').write(__name__)\n"
    planted = {f"{place}{name}.py": evil for name in MODULES for place in ("", "trainer/")}
    folder = small(tmp_path / "f", files={**planted, **description})
    if "setup.py" not in description:
        (folder / "setup.py").unlink()
    made = build(folder, tmp_path / "out", wheel=True)
    assert made.verified == ("trainer.task",) and made.wheel is not None and not ran.exists()


def test_settings_of_commands_are_not_in_the_package(tmp_path: Path) -> None:
    """An alias or a place in setup.cfg that would change the build has no part in it."""
    outside = tmp_path / "outside"
    config = f"[egg_info]\negg_base = {outside}\n[aliases]\nsdist = clean --all\n[global]\ncommand_packages = trainer\n"
    made = build(small(tmp_path / "f", files={"setup.cfg": config}), tmp_path / "out")
    assert made.verified == ("trainer.task",) and not outside.exists()


def test_a_package_that_came_with_the_folder_is_built_anew(tmp_path: Path) -> None:
    """A file in build/packages with the right name and record, but made elsewhere, is not taken for ours."""
    folder, out = small(tmp_path / "f", setup=SETUP.format(more="")), tmp_path / "out"
    made = build(folder, out, verify=False)
    whole = made.path.read_bytes()
    out.rename(tmp_path / "moved")
    assert not build(folder, tmp_path / "moved2", verify=False).path.samefile(tmp_path / "moved" / made.path.name)
    again = build(folder, tmp_path / "moved", verify=False)
    assert again.fresh and again.path.read_bytes() == whole
