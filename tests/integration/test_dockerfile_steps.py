"""The Dockerfile's install steps, run as they stand in a clean virtual environment that has torch.

No Docker engine is needed: what is tested is that the copied files suffice to build, that torch is not replaced, and
that the command starts.
"""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def instructions():
    """The Dockerfile's instructions as (name, arguments), continued lines joined and comments dropped."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def arguments_of(name):
    return [arguments for instruction, arguments in instructions() if instruction == name]


def environment_of_image():
    """The variables that ENV sets."""
    return dict(pair.split("=", 1) for arguments in arguments_of("ENV") for pair in shlex.split(arguments))


def copy_build_context(target):
    """What COPY puts into the image's build folder."""
    for arguments in arguments_of("COPY"):
        *sources, destination = arguments.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target / destination, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, target / destination)


def distributions_needed_by(name):
    """A distribution and all it needs here, by name."""
    found, queue = {}, [name]
    while queue:
        name = re.sub(r"[-_.]+", "-", queue.pop()).lower()
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        requirements = [text for text in found[name].requires or [] if ";" not in text]
        queue += [re.match(r"[\w.-]+", text).group() for text in requirements]
    return found


def provide_torch(interpreter, packages):
    """Shows this environment's torch, and what it needs, to a virtual environment that has nothing else.

    Links in one folder, named in a .pth file: nothing is downloaded, and pip sees an installed torch.
    """
    packages.mkdir()
    for distribution in distributions_needed_by("torch").values():
        for part in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            (packages / part).symlink_to(distribution.locate_file(part))
    purelib = run(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    (Path(purelib) / "torch_of_the_base_image.pth").write_text(f"{packages}\n")


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=900, **options)


@pytest.fixture
def base_image(tmp_path):
    """The bin folder of a clean virtual environment with pip, torch and what torch needs."""
    home = tmp_path / "base"
    venv.create(home, with_pip=True, symlinks=True)
    provide_torch(home / "bin" / "python3", tmp_path / "packages")
    return home / "bin"


@pytest.fixture
def package_index(base_image, tmp_path):
    """Skips where pip reaches no package index; asked with the build backend, which every build needs."""
    command = [base_image / "python3", "-m", "pip", "download", "--no-deps", "--dest", tmp_path / "probe", "hatchling"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if answer.returncode != 0:
        last_line = answer.stderr.strip().splitlines()[-1:]
        pytest.skip(f"pip reaches no package index from here, it could not download hatchling: {last_line}")


@pytest.mark.slow
def test_install_steps_add_autotune_and_leave_torch_alone(base_image, package_index, tmp_path):
    build = tmp_path / "build"
    build.mkdir()
    copy_build_context(build)
    path = f"{base_image}{os.pathsep}/usr/bin{os.pathsep}/bin"
    environment = {**os.environ, **environment_of_image(), "PATH": path}
    where_is_torch = (base_image / "python3", "-c", "import torch; print(torch.__version__, torch.__file__)")
    torch_before = run(*where_is_torch, env=environment).stdout

    steps = [arguments for arguments in arguments_of("RUN") if "pip" in arguments]
    for step in steps:
        done = subprocess.run(["/bin/sh", "-c", step], cwd=build, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}"

    assert len(steps) == 2
    assert run(*where_is_torch, env=environment).stdout == torch_before
    assert re.search(r"\d+\.\d+\.\d+", run(base_image / "autotune", "--version", env=environment, cwd=tmp_path).stdout)
    assert "No broken requirements" in run(base_image / "python3", "-m", "pip", "check", env=environment).stdout


@pytest.mark.slow
def test_install_steps_fail_in_an_image_without_torch(tmp_path):
    venv.create(tmp_path / "base", with_pip=True, symlinks=True)
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    environment = {
        **os.environ,
        **environment_of_image(),
        "PATH": f"{tmp_path / 'base' / 'bin'}{os.pathsep}/usr/bin:/bin",
    }
    first_step = next(arguments for arguments in arguments_of("RUN") if "pip" in arguments)

    done = subprocess.run(["/bin/sh", "-c", first_step], cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert done.returncode != 0


def test_everything_that_is_copied_is_in_the_build_context():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source for arguments in arguments_of("COPY") for source in arguments.split()[:-1]}
    assert copied == kept


def test_image_runs_autotune_as_a_user_that_is_not_root():
    assert arguments_of("USER")[-1] not in ("root", "0")
    assert arguments_of("ENTRYPOINT") == ['["autotune"]']
    assert arguments_of("VOLUME") == ["/project/studies"]
    names = [name for name, _ in instructions()]
    assert names.index("USER") > max(index for index, name in enumerate(names) if name == "RUN")
