"""What a trace answers, what it equals, and that a comparison which hangs is killed and counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from paceline.base.errors import InfrastructureError, PrerequisiteError
from paceline.families.reasoning.core.answers.text import (
    canonical_formula,
    extract_choice,
    extract_number,
    last_boxed,
)
from paceline.families.reasoning.core.grading.free_text import MAX_FORMULA, Grader

HANGING = "10^{10^{10}}"
"""Its value has more digits than memory; compared with a whole number, sympy tries to compute it."""

MATRIX = r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"

EQUAL = [
    (r"\frac{1}{2}", "0.5"),
    (r"\dfrac{3}{56}", r"\frac3{56}"),
    ("3/4", r"\tfrac34"),
    (r"-\frac{1}{2}", r"\frac{-1}{2}"),
    (r"3\frac{1}{2}", "7/2"),
    ("3 1/2", "3.5"),
    ("1,234", "1234"),
    ("1{,}234", r"1\,234"),
    (r"1.2\times 10^{5}", "120000"),
    ("1.2e5", "120000"),
    (r"\sqrt{8}", r"2\sqrt2"),
    (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt3}"),
    (r"2\sqrt{3}+1", r"1 + \sqrt{12}"),
    (r"\{1, 2, 3\}", r"\left\{3,2,1\right\}"),
    ("3, 5, 7", "7,5,3"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)"),
    (r"[1,2)\cup(2,3]", r"(2,3] \cup [1,2)"),
    (r"1 \pm \sqrt{2}", r"1+\sqrt{2}, 1-\sqrt{2}"),
    (MATRIX, MATRIX.replace("pmatrix", "bmatrix").replace("1&2", "1 & 2")),
    (r"\text{Evelyn}", "evelyn"),
    (r"\text{(C)}", "C"),
    ("(x+1)^2", "x^2 + 2x + 1"),
    (r"x\le 3", r"3 \ge x"),
    ("x=5", "5"),
    (r"x \in [-2,7]", "[-2, 7]"),
    ("6-5i", "-5i+6"),
    (r"90^\circ", "90"),
    (r"\log_2 8", "3"),
    (r"\binom{10}{3}", "120"),
    ("2516_8", "2516_{8}"),
    (r"\$18.90", "18.9"),
    ("$5$.", "5"),
]
"""Truths and answers."""

UNEQUAL = [
    (r"\frac{1}{2}", "2"),
    ("1/3", "0.33"),
    (r"\frac{3}{56}", r"\frac{3}{65}"),
    (r"3\frac{1}{2}", "3/2"),
    ("1,234", "1.234"),
    (r"1.2\times 10^{5}", "12000"),
    ("1000000", "1000001"),
    ("1", "1.0000001"),
    (r"\sqrt{8}", r"2\sqrt3"),
    ("3.14", r"\pi"),
    (r"\{1, 2, 3\}", r"\{1, 2\}"),
    ("(3,5,7)", "(7,5,3)"),
    ("(1,2)", "(2,1)"),
    ("[1,2)", "[1,2]"),
    (r"(-\infty,3]", r"(-\infty,3)"),
    (r"1 \pm \sqrt{2}", r"1+\sqrt{2}"),
    (MATRIX, r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
    (r"\text{Evelyn}", "Evenly"),
    ("Evelyn", "Evenly"),
    (r"\text{five}", "5"),
    (r"\text{even}", r"\text{odd}"),
    ("x^2+1", "y^2+1"),
    ("x<3", r"x\le 3"),
    ("x=5", "y=5"),
    ("6-5i", "6+5i"),
    (r"90^\circ", r"\frac{\pi}{2}"),
    (r"\infty", r"-\infty"),
    ("2516_8", "2516_9"),
    ("2516_8", "2516"),
    (r"5 \text{ cm}", r"50 \text{ mm}"),
    (r"5 \text{ cm}", r"5 \text{ m}"),
    (r"\{1,2\}", "(1,2)"),
    ("abcd", "dcba"),
    (r"\frac{1}{0}", "0"),
]

LIMITS = [
    (r"10\%", "10", True, "a per cent sign is dropped"),
    (r"10\%", "0.1", True, "and is also a hundredth"),
    (r"5 \text{ apples}", r"5 \text{ pears}", True, "words that are no units of measure do not count"),
    ("1/3", "0.333333", True, "decimals are rounded to six places"),
    (r"\sqrt{2}", "1.4142136", True, "decimals are rounded to six places"),
    ("k", "K", True, "single letters are compared without their case"),
    ("5", "y=5", True, "only what is behind an equals sign counts, whatever is before it"),
    ("12:30", "2/5", True, "a time is a quotient"),
    (r"e^{i\pi}", "-1", False, "exponentials of imaginary numbers are not simplified"),
    (r"0.\overline{3}", "1/3", False, "repeating decimals are not read"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)", False, "a vector and a tuple are different things"),
]
"""Where ``math-verify`` 0.9 is wrong, or decides what could be decided otherwise: truth, answer, what it says, why."""


@pytest.fixture(scope="module")
def formulas() -> Iterator[Grader]:
    with Grader("math", timeout_s=60) as grader:
        yield grader


Started = Callable[[], list[psutil.Process]]


@pytest.fixture
def started() -> Started:
    """Return what lists the processes that the test has started and that live, a grader's before its worker."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: [
        p
        for p in psutil.Process().children(recursive=True)
        if p not in before and p.status() != psutil.STATUS_ZOMBIE
    ]


def test_half_of_the_cases_must_not_be_equal() -> None:
    assert len(UNEQUAL) >= len(EQUAL) >= 30


@pytest.mark.parametrize(("truth", "answer"), EQUAL)
def test_equal_formulas_are_equal(formulas: Grader, truth: str, answer: str) -> None:
    assert formulas.equal(answer, truth)
    assert formulas.failures == formulas.timeouts == 0


@pytest.mark.parametrize(("truth", "answer"), UNEQUAL)
def test_different_formulas_are_not_equal(formulas: Grader, truth: str, answer: str) -> None:
    assert not formulas.equal(answer, truth)


@pytest.mark.parametrize(("truth", "answer", "says", "reason"), LIMITS)
def test_known_limits_of_the_library_are_as_they_are_told(
    formulas: Grader, truth: str, answer: str, says: bool, reason: str
) -> None:
    assert formulas.equal(answer, truth) is says, reason


@pytest.mark.parametrize("formula", sorted({one for pair in (*EQUAL, *UNEQUAL) for one in pair}))
def test_the_form_that_votes_compare_is_stable_and_equals_its_formula(formulas: Grader, formula: str) -> None:
    form = canonical_formula(formula)
    assert form is not None
    assert canonical_formula(form) == form
    assert formulas.equal(form, formula)
    assert formulas.extract(rf"so we have \boxed{{{formula}}}.") == form


def test_a_formula_is_found_without_a_box(formulas: Grader) -> None:
    texts = [
        "The answer is $x^2+1$.",
        "The final answer is 42. I hope it is correct",
        "so $x=3$.\nThus $y = \\dfrac{4}{3}$",
        "there is nothing here",
        "",
    ]
    assert formulas.extract_all(texts) == ["x^2+1", "42", r"y=\frac{4}{3}", None, None]


def test_a_formula_without_end_is_no_answer(formulas: Grader) -> None:
    assert formulas.extract(rf"\boxed{{{'1+' * MAX_FORMULA}1}}") is None
    assert not formulas.equal("1+" * MAX_FORMULA + "1", "5")
    assert not formulas.equal(None, "5")


def test_votes_are_named_by_the_first_of_each_class_and_near_misses_do_not_add_up(formulas: Grader) -> None:
    answers = [r"\sqrt{8}", "1/2", None, r"2\sqrt2", "0.5", "7", r"\sqrt{8}"]
    assert formulas.canonical(answers) == [r"\sqrt{8}", "1/2", None, r"\sqrt{8}", "1/2", "7", r"\sqrt{8}"]
    assert formulas.canonical(["10", r"10\%", "1/10"]) == ["10", "10", "1/10"]
    assert formulas.canonical([]) == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (r"we get \boxed{42}.", "42"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\boxed{\$1{,}234.50}", "2469/2"),
        (r"\boxed{\text{Tom has } 5 \text{ apples}}", "5"),
        (r"\boxed{x = 5 \text{ cm}^2}", "5"),
        (r"\boxed{100m2}", "100"),
        (r"\boxed{3\frac{1}{2}}", "7/2"),
        (r"\boxed{1.2\times 10^{5}}", "120000"),
        (r"\boxed{90^\circ}", "90"),
        (r"\boxed{50\%}", "50"),
        (r"\boxed{073}", "73"),
        ("\\boxed{\u22127}", "-7"),
        ("6 * 7 = 42\n#### 1,234", "1234"),
        ("The answer is 3 + 4 = 7.", "7"),
        ("The answer is $18. She had 20 before.", "18"),
        ("Answer:\n**1,000** dollars", "1000"),
        ("the answer is not 5. It is 6.", "6"),
        ("He has 3 and then -5 left", "-5"),
        ("from 3-5", "5"),
    ],
)
def test_numbers_are_read_by_the_stated_rules(text: str, number: str) -> None:
    assert extract_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no number",
        r"\boxed{2\pi}",
        r"\boxed{\sqrt{2}}",
        r"\boxed{10^x}",
        r"\boxed{x-5}",
        r"\boxed{5, 6}",
        r"\boxed{5 \text{ and } 3}",
        r"42 \boxed{\text{forty-two}}",
        r"\boxed{1/0}",
        "#### none",
        "9" * 500,
        "1e999999999",
    ],
)
def test_what_is_no_number_is_no_answer(text: str) -> None:
    assert extract_number(text) is None


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{b}", "B"),
        (r"\boxed{\text{(B)}}", "B"),
        (r"\boxed{\textbf{(A)}\ 5}", "A"),
        (r"\boxed{42}", None),
        ("The answer is (C).", "C"),
        ("Answer: **D**", "D"),
        ("A is wrong. The answer is option (b).", "B"),
        ("The answer is a matter of taste", None),
        ("The answer is Dogs", None),
        ("I think so:\n**B**", "B"),
        ("B or C", None),
        ("", None),
    ],
)
def test_choices_are_read_by_the_stated_rules(text: str, letter: str | None) -> None:
    assert extract_choice(text) == letter


def test_a_box_holds_braces_and_an_open_one_is_none() -> None:
    assert last_boxed(r"\boxed{\{1, \frac{1}{2}\}}") == r"\{1, \frac{1}{2}\}"
    assert last_boxed(r"\boxed{1} and \boxed{\frac{1}{2") == "1"
    assert last_boxed(r"\boxed{\boxed{5}}") == "5"
    assert last_boxed("none") is None


def test_numbers_and_choices_need_no_process_and_are_compared_exactly(started: Started) -> None:
    numbers, choices = Grader("number"), Grader("choice")
    assert numbers.equal_all([("1/2", "0.50"), ("42", "42.0"), ("42", "43"), (None, "42")]) == [
        True,
        True,
        False,
        False,
    ]
    assert numbers.canonical(["0.5", "1/2", None, "3"]) == ["0.5", "0.5", None, "3"]
    assert choices.equal("B", "b")
    assert not choices.equal("A", "B")
    assert started() == []
    with pytest.raises(ValueError, match="'many' is no number"):
        numbers.equal("5", "many")
    with pytest.raises(ValueError, match="'E' is none of the choices ABCD"):
        choices.equal("A", "E")


@pytest.mark.timeout(60)
def test_a_comparison_that_hangs_is_killed_and_counted_and_the_others_go_on(started: Started) -> None:
    with Grader("math", timeout_s=5.0) as grader:
        pairs = [(r"\sqrt{8}", r"2\sqrt2"), ("5", HANGING), (r"2\sqrt3", r"\sqrt{12}"), ("x+1", "1+x")]
        grader.equal_all(pairs[::3])  # what is loaded at the first comparison is not what is timed here
        assert grader.equal_all(pairs) == [True, False, True, True]
        assert (grader.timeouts, grader.failures) == (1, 0)
        assert grader.faults == [f"equal {HANGING} 5: not done within 5 s"]
        assert not grader.equal("5", HANGING)
        assert grader.timeouts == 1  # what is known is not asked again
        assert len(started()) == 2
    assert started() == []


def test_a_worker_that_dies_is_a_failure_and_the_others_go_on(started: Started) -> None:
    with Grader("math", timeout_s=60) as grader:
        assert grader.equal("y+x", "x+y")
        _, worker = started()
        worker.kill()
        assert not grader.equal("z+x", "x+z")
        assert (grader.timeouts, grader.failures) == (0, 1)
        assert "the worker died" in grader.faults[0]
        assert grader.equal("z+y", "y+z")


def test_no_process_is_left_by_an_error_or_a_lost_process(started: Started) -> None:
    with pytest.raises(KeyboardInterrupt), Grader("math"):
        raise KeyboardInterrupt
    assert started() == []
    with Grader("math") as grader, pytest.raises(InfrastructureError, match=r"was lost|process ended"):
        started()[0].kill()
        grader.equal("z+x", "x+z")
    assert started() == []


def computed_s(processes: list[psutil.Process]) -> float:
    return sum(process.cpu_times().user for process in processes)


def test_a_caller_that_is_killed_takes_the_processes_with_it() -> None:
    program = f"""if True:
        from paceline.families.reasoning.core.grading.free_text import Grader
        with Grader("math", timeout_s=1000) as grader:
            print(grader.equal("x+1", "1+x"), flush=True)
            grader.equal("5", {HANGING!r})
        """
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    assert caller.stdout.readline() == "True\n"
    left = psutil.Process(caller.pid).children(recursive=True)
    assert len(left) == 2
    before_s, deadline = computed_s(left), time.monotonic() + 60
    while computed_s(left) < before_s + 0.2:  # the worker is at the comparison that hangs
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(caller.pid, signal.SIGKILL)
    caller.wait(60)
    caller.stdout.close()
    _, alive = psutil.wait_procs(left, timeout=60)
    assert alive == []


def test_a_grader_of_formulas_works_inside_of_its_context() -> None:
    with pytest.raises(RuntimeError, match="inside of its context"):
        Grader("math").equal(r"\sqrt{8}", r"2\sqrt2")
    with pytest.raises(ValueError, match="no kind 'essay' of answers; there are: number, math, choice"):
        Grader("essay")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a time limit of 0"):
        Grader("math", timeout_s=0)


def test_a_missing_library_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: Started
) -> None:
    (folder := tmp_path / "math_verify").mkdir()
    (folder / "__init__.py").write_text("raise ImportError('it is not here')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with pytest.raises(
        PrerequisiteError, match=r"(?s)math-verify: it is not here.*pip install 'paceline\[math\]'"
    ):
        Grader("math").__enter__()
    assert started() == []
