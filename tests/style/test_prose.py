from __future__ import annotations

import pytest

from tests.style.prose import main, sentences, share

POINTING = "What it says of those that others have is that which one has."
PLAIN = "The supervisor ends the trial and removes the folder of the trial."


def shares(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_text(source)
    return share(sentences(path))


@pytest.mark.parametrize(
    "source",
    [
        '"""{}"""\n',
        'def f():\n    """{}"""\n',
        'NUMBER = 1\n"""{}"""\n',
        "# {}\n",
        "x = 1  # {}\n",
        'if True:\n    pass\nelse:\n    """{}"""\n',
    ],
)
def test_docstrings_and_comments_are_read_wherever_they_stand(tmp_path, source):
    assert shares(tmp_path, source.format(POINTING)) == pytest.approx(8 / 13)
    assert shares(tmp_path, source.format(PLAIN)) == 0


def test_code_texts_and_labels_are_not_counted(tmp_path):
    assert shares(tmp_path, f'text = "{POINTING}"\nit = that = 1\n"""What it is of those."""\n') == 0


def test_the_exit_code_says_whether_all_files_together_are_below_the_limit(tmp_path, capsys):
    (tmp_path / "plain.py").write_text(f'"""{PLAIN * 10}"""\n')
    (tmp_path / "pointing.py").write_text(f'"""{POINTING}"""\n')
    assert main([str(tmp_path), "--limit", "0.9"]) == main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--limit", "0.01"]) == 1
    assert main([str(tmp_path / "plain.py"), "--limit", "0"]) == 0
    assert "in 2 files" in capsys.readouterr().out


def test_the_worst_files_and_sentences_come_first(tmp_path, capsys):
    (tmp_path / "plain.py").write_text(f'"""{" ".join([PLAIN] * 4)}"""\n')
    (tmp_path / "pointing.py").write_text(f'"""{" ".join([POINTING.rstrip(".")] * 4)}."""\n')
    main([str(tmp_path), "--worst", "1"])
    first, sentence, _ = capsys.readouterr().out.splitlines()
    assert "pointing.py" in first and sentence.startswith(f"{tmp_path / 'pointing.py'}:1: What it says")
