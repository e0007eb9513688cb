"""What a mistyped command line is told: one line with what is wrong, the nearest option, and where all are listed."""

from __future__ import annotations

import pytest

import app

TYPED = [
    ("clone", "required: --reference, --text, --output", "app.py clone"),
    ("clone --reference a.wav --txet Hi. --output b.wav", "no option --txet. Did you mean --text?", "app.py clone"),
    ("say --voice a --text b --precision q", "invalid choice: 'q'", "app.py say"),
    ("serve --local --prt=3", "no option --prt. Did you mean --port?", "app.py serve"),
    ("serve --local here", "unrecognized arguments: here", "app.py serve"),
    ("dataset build a.wav --nmae ann", "no option --nmae. Did you mean --name?", "app.py dataset build"),
    ("keys limits ann --max-voices q", "'q' is neither a number nor none", "app.py keys limits"),
    ("voices", "required: VERB", "app.py voices"),
    ("pipelin --voice me", "Did you mean pipeline?", "app.py"),
    ("sya --voice me", "Did you mean say?", "app.py"),
    ("runs lsit", "Did you mean list?", "app.py runs"),
    ("say --voice a --text b --precision=bf61", "Did you mean bf16?", "app.py say"),
    ("xylophone", "invalid choice: 'xylophone'", "app.py"),
    ("--model mini", "there is no option --model.", "app.py"),
    ("--prot 3", "there is no option --prot. Did you mean --port?", "app.py"),
]


@pytest.mark.parametrize(("typed", "said", "program"), TYPED, ids=[typed for typed, *_ in TYPED])
def test_a_usage_error_is_one_line(typed, said, program, capsys):
    """It was the whole usage, for a misspelt option of a command that of `app.py` itself."""
    with pytest.raises(SystemExit) as ended:
        app.main(typed.split())
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("encore: ")
    assert said in line
    assert line.endswith(f"`{program} --help` lists the options.")


def test_what_follows_two_dashes_and_beginnings_of_options_are_taken(capsys):
    with pytest.raises(SystemExit):
        app.main(["say", "--voi", "a", "--tex", "b", "--precision", "q"])
    assert "no option" not in capsys.readouterr().err
