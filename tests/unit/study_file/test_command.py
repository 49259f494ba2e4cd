import os
import sys

import pytest

from autotune.errors import UsageError
from autotune.study_file.command import as_typed, check_script, module_command, script_command, whole_command

PYTHON = sys.executable
TORCHRUN = (PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max-restarts=0")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a script, a package, and a program that starts scripts."""
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "no_suffix").write_text("print('hello')\n")
    (tmp_path / "pkg" / "inner").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("raise SystemExit('a check must not import this')\n")
    (tmp_path / "pkg" / "train.py").write_text("print('hello')\n")
    (tmp_path / "pkg" / "broken.py").write_text("print('hello'\n")
    (tmp_path / "pkg" / "inner" / "__init__.py").write_text("raise SystemExit('nor this')\n")
    (tmp_path / "pkg" / "inner" / "__main__.py").write_text("print('hello')\n")
    (tmp_path / "space" / "deep").mkdir(parents=True)
    (tmp_path / "space" / "deep" / "train.py").write_text("print('hello')\n")
    launcher = tmp_path / "bin" / "launch"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    monkeypatch.setenv("PATH", f"{launcher.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_a_script_is_started_by_the_python_of_the_tuner_as_it_was_typed(folder):
    job = script_command("train.py", ["--epochs", "3"], folder)
    assert job.command == (PYTHON, "train.py", "--epochs", "3")
    assert job.script == str(folder / "train.py")
    assert job.default_study == "train"


def test_a_module_is_started_by_its_name():
    job = module_command("pkg.train", ["-x"])
    assert job.command == (PYTHON, "-m", "pkg.train", "-x")
    assert (job.script, job.is_module, job.default_study) == ("pkg.train", True, "pkg.train")


def test_several_processes_are_started_by_torchrun_without_restarts(folder):
    assert script_command("train.py", ["-x"], folder, num_processes=2).command == (*TORCHRUN, "train.py", "-x")
    job = module_command("pkg.train", [], num_processes=2)
    assert job.command == (*TORCHRUN, "-m", "pkg.train")
    assert job.num_processes_per_node == 2


@pytest.mark.parametrize(
    ("words", "script", "num_processes"),
    [
        ("launch --nproc-per-node 2 train.py --epochs 3", "train.py", 2),
        ("launch --nproc_per_node=4 train.py", "train.py", 4),
        ("launch --num_processes 3 pkg/train.py x.py", "pkg/train.py", 3),
        ("launch --nproc-per-node gpu train.py", "train.py", 1),
        ("python3 train.py", "train.py", 1),
        ("python3 no_suffix", "no_suffix", 1),
        ("python3 -m torch.distributed.run --nproc-per-node=2 train.py", "train.py", 2),
    ],
)
def test_the_script_of_a_whole_command_is_found(folder, words, script, num_processes):
    job = whole_command(words.split(), folder)
    assert job.command == tuple(words.split())
    assert (job.script, job.is_module) == (str(folder / script), False)
    assert job.num_processes_per_node == num_processes


@pytest.mark.parametrize("words", ["python3 -m pkg.train x", "launch -m pkg.train x", "launch --module pkg.train"])
def test_the_module_of_a_whole_command_is_found(folder, words):
    job = whole_command(words.split(), folder)
    assert (job.script, job.is_module) == ("pkg.train", True)


def test_a_program_beside_this_python_is_found_without_an_activated_environment(folder, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert whole_command(["launch", "train.py"], folder).command[0] == str(folder / "bin" / "launch")


def test_a_command_whose_program_is_not_there_is_refused(folder):
    with pytest.raises(UsageError, match="no program 'torchrum'"):
        whole_command(["torchrum", "train.py"], folder)
    with pytest.raises(UsageError, match=r"no program '\./launch'"):
        whole_command(["./launch", "train.py"], folder)
    with pytest.raises(UsageError, match="no program"):
        whole_command([str(folder), "train.py"], folder)


CONSOLE = "from pkg.train import main\nmain()\n"


def program(folder, name, text):
    """A program on the PATH, with such a text."""
    path = folder / "bin" / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "head",
    [
        "#!/usr/bin/python3\n",
        "#!/usr/bin/env python\n",
        "#!/usr/bin/env -S python3.12 -u\n",
        "#!/bin/sh\n'''exec' \"/a long way/to/python3\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_a_console_script_on_the_path_is_the_script_of_its_command(folder, head):
    path = program(folder, "bert", head + CONSOLE)
    job = whole_command(["bert", "-c", "train.txt"], folder)
    assert (job.command, job.script) == (("bert", "-c", "train.txt"), str(path))
    assert job.default_study == "bert"
    check_script(job, folder)


def test_a_python_program_without_a_suffix_is_the_script_where_its_path_is_typed(folder):
    path = program(folder, "bert", f"#!/usr/bin/env python3\n{CONSOLE}")
    assert whole_command(["bin/bert", "-c", "x"], folder).script == str(path)
    assert whole_command([str(path), "-c", "x"], folder).script == str(path)


def test_a_script_that_a_python_program_is_given_comes_before_the_program(folder):
    program(folder, "start", f"#!/usr/bin/env python3\n{CONSOLE}")
    assert whole_command(["start", "--nproc-per-node", "2", "train.py"], folder).script == str(folder / "train.py")


@pytest.mark.parametrize("name", ["torchrun", "accelerate", "deepspeed"])
def test_a_launcher_is_no_script_although_it_is_a_python_program(folder, name):
    program(folder, name, f"#!/usr/bin/env python3\n{CONSOLE}")
    with pytest.raises(UsageError, match=r"No word of the command '.*tarin\.py' is a Python script"):
        whole_command([name, "tarin.py"], folder)


def test_a_refused_command_is_not_answered_with_what_was_typed_already(folder):
    for words, wanted in ((["launch", "tarin.py"], "by its path"), (["torchrum", "train.py"], "PATH")):
        with pytest.raises(UsageError) as caught:
            whole_command(words, folder)
        assert "goes after --" not in caught.value.hint and wanted in caught.value.hint


def test_a_command_without_a_script_is_refused(folder):
    with pytest.raises(UsageError, match=r"No word of the command 'launch tarin\.py'"):
        whole_command(["launch", "tarin.py"], folder)


@pytest.mark.parametrize(
    "typed",
    [
        ("train.py",),
        ("train.py", "--", "--epochs", "3"),
        ("-m", "pkg.train"),
        ("-m", "pkg.train", "--", "x"),
        ("train.py", "--nproc-per-node", "2", "--", "x"),
        ("-m", "pkg.train", "--nproc-per-node", "2"),
        ("--", "launch", "train.py", "--", "x"),
    ],
)
def test_a_command_can_be_typed_again(folder, typed):
    head, tail = (typed[: typed.index("--")], typed[typed.index("--") + 1 :]) if "--" in typed else (typed, ())
    num_processes = 2 if "--nproc-per-node" in head else 1
    if not head:
        job = whole_command(tail, folder)
    elif head[0] == "-m":
        job = module_command(head[1], tail, num_processes=num_processes)
    else:
        job = script_command(head[0], tail, folder, num_processes=num_processes)
    assert as_typed(job.command) == typed


def test_a_command_of_this_python_with_options_stays_whole():
    assert as_typed((PYTHON, "-u", "train.py")) == ("--", PYTHON, "-u", "train.py")


def test_a_good_script_and_good_modules_pass(folder):
    check_script(script_command("train.py", [], folder), folder)
    for name in ("pkg.train", "pkg.inner", "space.deep.train"):
        check_script(module_command(name, []), folder)


def test_a_missing_script_is_refused_by_the_name_that_was_typed(folder):
    with pytest.raises(UsageError, match=r"There is no script tarin\.py"):
        check_script(script_command("tarin.py", [], folder), folder)


def test_a_program_typed_as_a_script_is_told_about_whole_commands(folder):
    with pytest.raises(UsageError) as caught:
        check_script(script_command("launch", [], folder), folder)
    assert "goes after --" in caught.value.hint


def test_a_folder_is_no_script(folder):
    with pytest.raises(UsageError, match="pkg is a folder"):
        check_script(script_command("pkg", [], folder), folder)


@pytest.mark.parametrize("content", [b"x = (\n", b"def f(:\n", b"\x00", b"\xff\xfe\xfa", b"# coding: nonsense\n"])
def test_what_is_not_python_is_refused_before_it_runs(folder, content):
    (folder / "bad.py").write_bytes(content)
    with pytest.raises(UsageError, match=r"bad\.py"):
        check_script(script_command("bad.py", [], folder), folder)


def test_a_syntax_error_is_told_with_its_line(folder):
    (folder / "bad.py").write_text("x = 1\ny = = 2\n")
    with pytest.raises(UsageError, match=r"bad\.py line 2: invalid syntax"):
        check_script(script_command("bad.py", [], folder), folder)


def test_what_python_only_warns_of_passes(folder):
    (folder / "odd.py").write_text("x = '\\d'\nassert (x, 'always')\n")
    check_script(script_command("odd.py", [], folder), folder)


@pytest.mark.parametrize("name", ["pkg.missing", "pkgg.train", "pkg.train.more"])
def test_a_missing_module_is_refused(folder, name):
    with pytest.raises(UsageError, match=f"There is no module '{name}'"):
        check_script(module_command(name, []), folder)


def test_a_package_without_a_main_is_refused(folder):
    with pytest.raises(UsageError, match="'pkg' has no __main__"):
        check_script(module_command("pkg", []), folder)


def test_a_broken_module_is_refused(folder):
    with pytest.raises(UsageError, match=r"pkg\.broken line 1: '\(' was never closed"):
        check_script(module_command("pkg.broken", []), folder)


def test_a_module_of_the_standard_library_passes(folder):
    check_script(module_command("json.tool", []), folder)


def test_a_module_that_hides_our_package_beside_the_file_behind_a_link_is_refused(folder, tmp_path):
    (folder / "autotune.py").write_text("")
    linked = tmp_path / "elsewhere"
    linked.mkdir()
    (linked / "train.py").symlink_to(folder / "train.py")
    with pytest.raises(UsageError, match="hides the package autotune"):
        check_script(script_command("train.py", (), linked), linked)


@pytest.mark.parametrize("own", ["autotune.py", "autotune/__init__.py"])
def test_a_module_that_hides_our_package_from_the_script_is_refused(folder, own):
    (folder / own).parent.mkdir(exist_ok=True)
    (folder / own).write_text("")
    with pytest.raises(UsageError, match="hides the package autotune"):
        check_script(script_command("train.py", (), folder), folder)
