import pytest

from flows.runs import progress
from flows.runs.progress import LISTENER, Bar, Silent, shown


@pytest.fixture
def clock(monkeypatch):
    """Seconds that only a test moves."""
    seconds = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds[0])
    return seconds


def take(listener, name, *, cached=False):
    listener.before("update_student", name)
    listener.after(cached=cached)


def test_a_log_gets_a_line_about_steps_only_now_and_then(clock, capsys):
    with shown(quiet=False):
        told = LISTENER.get()
        told.begin(4)
        take(told, "cycle-001", cached=True)
        clock[0] += progress.EVERY_S
        take(told, "cycle-002")
        take(told, "cycle-003")
        clock[0] += progress.EVERY_S
        take(told, "cycle-004")
    assert capsys.readouterr().err.splitlines() == [
        "[    30 s] 1 of 4 steps, 1 cached; now update_student cycle-002",
        "[    60 s] 3 of 4 steps, 1 cached; now update_student cycle-004",
    ]


def test_what_is_worth_a_line_is_said_at_once(clock, capsys):
    with shown(quiet=False):
        LISTENER.get().said("strict-opd/seed-1: 75.0 % solved")
    assert capsys.readouterr().err == "[     0 s] strict-opd/seed-1: 75.0 % solved\n"


def test_a_terminal_gets_a_bar_and_the_same_lines_above_it(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with shown(quiet=False):
        told = LISTENER.get()
        assert isinstance(told, Bar)
        for _ in range(2):
            told.begin(2)
            take(told, "cycle-001")
            told.said("strict-opd/seed-1: 75.0 % solved")
        [task] = told.progress.tasks
        assert (task.completed, task.total) == (1, 2)
    seen = capsys.readouterr().err
    assert seen.count("strict-opd/seed-1: 75.0 % solved\n") == 2
    assert " s] " not in seen


@pytest.mark.parametrize("quiet", [True, False])
def test_nobody_is_told_after_the_end(quiet):
    with shown(quiet=quiet):
        assert isinstance(LISTENER.get(), Silent) is quiet
    assert isinstance(LISTENER.get(), Silent)


def test_a_quiet_run_says_nothing(clock, capsys):
    with shown(quiet=True):
        told = LISTENER.get()
        told.begin(1)
        clock[0] += 10 * progress.EVERY_S
        take(told, "cycle-001")
        told.said("done")
    assert capsys.readouterr() == ("", "")
