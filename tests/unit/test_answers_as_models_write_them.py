"""Kinds of answers that graders were reported to misread: numbers, scales, hedges, choices, thinking, units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.families.reasoning.core.answers.text import extract_choice, extract_number, last_boxed, solution
from paceline.families.reasoning.core.grading.free_text import Grader
from paceline.families.reasoning.core.problems.files import TextProblem
from paceline.families.reasoning.core.questions.textual import Textual


@pytest.fixture(scope="module")
def formulas() -> Iterator[Grader]:
    with Grader("math", timeout_s=60) as grader:
        yield grader


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (r"\boxed{95 \text{ km/h}}", "95"),
        (r"\boxed{95\ \frac{\text{km}}{\text{h}}}", "95"),
        (r"\boxed{26 \mathrm{~m}^{2}}", "26"),
        (r"\boxed{4.9 \text{ N}\cdot\text{m}}", "49/10"),
        (r"\boxed{88元}", "88"),
        ("答案是 88 元。", "88"),
        (r"\boxed{₹1,25,000}", "125000"),
        ("The answer is ₹640.", "640"),
        (r"\boxed{4 200 000}", "4200000"),
        (r"\boxed{4\,200\,000}", "4200000"),
        (r"\boxed{4'200'000}", "4200000"),
        ("La réponse est 4.200,50.", "8401/2"),
        (r"\boxed{{{31}}}", "31"),
        (r"\boxed{10^7}", "10000000"),
        (r"\boxed{5^{-2}}", "1/25"),
        ("Answer: 10⁴", "10000"),
        (r"\boxed{2^4 \cdot 3}", "48"),
        (r"\boxed{8!}", "40320"),
        (r"\boxed{\binom{6}{3}}", "20"),
        ("The answer is 8!", "8"),
        ("The answer is –14.", "-14"),
        ("Answer: −14", "-14"),
        (r"\boxed{－14}", "-14"),
        (r"\boxed{\text{minus } 14}", "-14"),
        (r"\boxed{６５}", "65"),
        ("الجواب: ٦٥", "65"),
        ("उत्तर: ६५", "65"),
        ("答案是六十五。", "65"),
        (r"\boxed{16^{\text{th}}}", "16"),
        (r"\boxed 23", "23"),
    ],
)
def test_numbers_are_read_with_their_units_signs_and_powers(text: str, number: str) -> None:
    assert extract_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{4y}",
        r"\boxed{4e}",
        r"\boxed{4\pi}",
        r"\boxed{4 \pm 1}",
        r"\boxed{4:30}",
        r"\boxed{>4}",
        "Answer: 4√2",
    ],
)
def test_what_is_more_than_a_number_is_none(text: str) -> None:
    assert extract_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (r"\boxed{\$8 \text{ million}}", "8000000"),
        ("The answer is $8.5 million dollars.", "8500000"),
        ("Answer: 3 billion", "3000000000"),
        ("Answer: 90 thousand", "90000"),
        ("Answer: $90k", "90000"),
        ("Answer: $7M", "7000000"),
        ("Answer: $7m", "7000000"),
        ("Answer: €7bn", "7000000000"),
        ("Antwort: 7 Mio. Euro", "7000000"),
        ("Ответ: 7 млн", "7000000"),
        ("答案：7亿", "700000000"),
        ("Answer: 7 m", "7"),
        ("Answer: 7m", "7"),
        ("Answer: 7 km", "7"),
        ("Answer: 300 K", "300"),
        ("Answer: 2 dozen", "2"),
        ("答案：3千克", "3"),
    ],
)
def test_words_of_scale_multiply_where_they_can_mean_nothing_else(text: str, number: str) -> None:
    assert extract_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 21 or 22.",
        "The answer is 21, or perhaps 22.",
        "Answer: 21 apples or 22 apples",
        "Answer: 21 to 25",
        "Answer: 21–25",
        "The answer is between 21 and 25 apples.",
        "The answers are 21, 22 and 23.",
        r"\boxed{21 \text{ or } 22}",
        r"\boxed{21} or \boxed{22}",
        r"\boxed{x = 21 \text{ and } y = 22}",
        "It is either 21 or 22.",
        "Antwort: 21 oder 22",
        "Ответ: 21 или 22",
    ],
)
def test_two_numbers_are_no_answer(text: str, formulas: Grader) -> None:
    assert extract_number(text) is None
    assert not formulas.equal(formulas.extract(text), "21")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It could be 21 or 22. It is even, so the answer is 22.", "22"),
        ("The answer is not 21 but 22.", "22"),
        ("The answer is 3/4 or 0.75.", "3/4"),
        ("The answer is 120 seconds, or 2 minutes.", "120"),
        ("The answer is 22, 2 more than 20.", "22"),
        ("The answer is 22, since 1 or 2 are too few.", "22"),
    ],
)
def test_a_number_that_is_decided_for_or_said_twice_is_one(text: str, number: str) -> None:
    assert extract_number(text) == number


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("**Answer:** B", "B"),
        ("**Answer**: **B**", "B"),
        ("__Final Answer:__ *B*", "B"),
        ("Answer: Option (B)", "B"),
        ("Answer: choice B, the second", "B"),
        (r"Answer: $\mathbf{B}$", "B"),
        (r"Answer: \(\mathrm{B}\)", "B"),
        ("<answer>B</answer>", "B"),
        ("<answer>(B) 12 m</answer>", "B"),
        (r"So $\boxed{v = \sqrt{2gh}}$. **Answer: B**", "B"),
        (r"\boxed{\text{Option B}}", "B"),
        ("Therefore, option **B** is correct.", "B"),
        ("The correct option is B.", "B"),
        ("I'd go with B.", "B"),
        ("The answer isn't A but B.", "B"),
        ("The answer is B, not A.", "B"),
        ("B) 12 m\n\nIt falls for a second.", "B"),
        ("答案选B", "B"),
        ("Die Antwort ist B.", "B"),
        ("Ответ: В", "B"),
        ("الإجابة: B", "B"),
        ("Answer: A or B", None),
        ("Answer: A (or B)", None),
        ("Answer: (A) and (B)", None),
        (r"\boxed{A, B}", None),
        (r"\boxed{AB}", None),
        (r"\boxed{\text{A or B}}", None),
        ("答案是 A 或 B", None),
        ("Either A or B. Then the answer is B.", "B"),
        ("A good answer is hard to give.", None),
        ("A) 1\nB) 2\nC) 3", None),
    ],
)
def test_letters_are_read_whatever_stands_around_them_and_two_are_none(text: str, letter: str | None) -> None:
    assert extract_choice(text) == letter


def test_more_than_four_choices_are_read_where_the_question_has_them() -> None:
    assert extract_choice("The answer is (G).") is None
    assert extract_choice("The answer is (G).", "ABCDEFGH") == "G"
    assert extract_choice("The answer is I think unclear.", "ABCDEFGHIJ") is None


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("<think>", "</think>"),
        ("<thinking>", "</thinking>"),
        ("[THINK]", "[/THINK]"),
        ("◁think▷", "◁/think▷"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ],
)
def test_the_answer_behind_thinking_counts_and_thinking_that_was_cut_off_has_none(
    formulas: Grader, opening: str, closing: str
) -> None:
    thought = rf"{opening}It could be \boxed{{61}}. The answer is A."
    assert extract_number(rf"{thought}{closing}The answer is 62.") == "62"
    assert formulas.extract(rf"{thought}{closing}The answer is 62.") == "62"
    assert extract_choice(f"{thought}{closing}**B**") == "B"
    assert extract_number(f"{thought}{closing}") is None
    assert extract_number(thought) is extract_choice(thought) is formulas.extract(thought) is None
    # Templates that open it themselves leave the closing alone.
    assert extract_number(rf"It could be \boxed{{61}}{closing}The answer is 62.") == "62"


class Letters:
    """A writer whose tokens are letters; its prompts end in what a template adds."""

    def __init__(self, added: str = "") -> None:
        self._added = added

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    def chat(self, question: str) -> tuple[int, ...]:
        return self.encode(question + self._added)


def test_a_template_that_opens_the_thinking_leaves_a_text_that_was_cut_off_without_an_answer() -> None:
    problem = TextProblem(key=1, level=0, question="How many?", answer="62", kind="number")
    for added, answer in (("\n<think>\n", None), ("", "61")):
        writer = Letters(added)
        reading = Textual(writer, [problem], Grader("number"), nullcontext)
        assert reading.answer(0, writer.encode(r"It could be \boxed{61}, but")) == answer
        assert reading.right(0, reading.answer(0, writer.encode("61?</think>The answer is 62.")))


def test_a_grader_has_the_letters_of_the_questions_and_a_record_the_rows_left_out() -> None:
    problem = TextProblem(key=1, level=0, question="Which?", answer="G", kind="choice", choices="ABCDEFG")
    writer = Letters()
    reading = Textual(writer, [problem], Grader("choice"), nullcontext, {"problems_left_out": 3})
    assert reading.right(0, reading.answer(0, writer.encode("The answer is (G).")))
    assert not reading.right(0, reading.answer(0, writer.encode("The answer is (F).")))
    assert reading.facts()["problems_left_out"] == 3


INVENTED = [
    "\n\nQuestion: How many are 3 and 4?\nAnswer: ",
    "\nQ: How many are 3 and 4?\nA: ",
    "\n\n**Problem:** How many are 3 and 4?\n\n",
    "\n\n### Question 2\nHow many are 3 and 4?\n",
    "\n\nHuman: How many are 3 and 4?\n\nAssistant: ",
    "<|im_end|>\n<|im_start|>user\nHow many are 3 and 4?",
    "\n\nA jar has 3 red and 4 blue balls. How many balls does it have?\n\n",
    "\n\n问题：3 加 4 是多少？\n",
]


@pytest.mark.parametrize("invented", INVENTED)
@pytest.mark.parametrize("form", ["#### {}", r"\boxed{{{}}}", "The answer is {}.", "<answer>{}</answer>"])
def test_the_first_complete_answer_counts_where_a_model_goes_on_to_ask_itself(
    invented: str, form: str
) -> None:
    assert extract_number(f"5 + 6 = 11\n{form.format(11)}{invented}{form.format(7)}") == "11"


@pytest.mark.parametrize("form", ["#### {}", r"\boxed{{{}}}", "The answer is {}."])
@pytest.mark.parametrize(
    "between",
    [
        "\n\nWait, I forgot the two at the end. Is that right? Let me count again.\n\n",
        "\nActually, that is a mistake.\n",
        "\n\nHmm, how many of the 12 were sold? I should subtract them.\n\n",
    ],
)
def test_an_answer_that_is_corrected_in_the_same_solution_counts_by_the_last(form: str, between: str) -> None:
    assert extract_number(f"{form.format(11)}{between}{form.format(9)}") == "9"


def test_a_correction_in_words_behind_a_box_counts_and_other_sentences_do_not() -> None:
    assert extract_number(r"So \boxed{11}. Wait, that is wrong. The answer is 9.") == "9"
    assert extract_number(r"So \boxed{11}. The answer is 11 because 9 were left.") == "11"


def test_a_question_that_is_restated_first_is_none_of_the_models_own() -> None:
    text = "Question: what are 3 and 4?\n\nProblem: add them.\n\nAnswer: 3 + 4 = 7\n#### 7"
    assert extract_number(text) == "7"


def test_headings_with_four_signs_are_no_marks() -> None:
    assert extract_number("#### Step 1: add\n2 + 3 = 5\n\n#### Step 2: done\n\n**Answer:** 5") == "5"
    assert extract_number("#### Step 3") == "3"


UNITS = [
    (r"7 \text{ m}", r"7 \text{ m}^2", False),
    (r"7 \text{ m}", r"7 \text{ km}", False),
    (r"7 \text{ m}", r"7 \text{ meters}", True),
    (r"7 \text{ m}", "7", True),
    ("7", r"7 \mathrm{~m}^{2}", True),
    (r"7 \text{ m}^2", r"7 \text{ square meters}", True),
    (r"7 \text{ m}^2", r"7 m^2", True),
    (r"7 \text{ km/h}", r"7 \frac{\text{km}}{\text{h}}", True),
    (r"7 \text{ km/h}", r"7 \text{ m/s}", False),
    (r"7\sqrt{2} \text{ m}", r"\sqrt{98} \text{ m}", True),
    (r"7\sqrt{2} \text{ m}", r"\sqrt{98} \text{ m}^3", False),
    (r"\$7", r"7 \text{ euros}", False),
    (r"70^\circ", r"70 \text{ rad}", False),
    (r"7 \text{ boys}", r"7 \text{ children}", True),
    ("7000000", r"7 \text{ million}", True),
    ("7", r"7 \text{ million}", False),
]
ORDERED = [
    ("(3,8)", r"\{3,8\}", False),
    (r"\{3,8\}", "(3,8)", False),
    (r"\{3,8\}", r"\{8,3\}", True),
    ("(3,8)", "(3, 8)", True),
    ("(3,8,1)", r"\{3,8,1\}", False),
    (r"(5,\infty)", "x>5", True),
    (r"(-\infty,0)\cup(5,\infty)", r"x<0 \text{ or } x>5", True),
    (r"(-\infty,0)\cup(5,\infty)", r"x<0 \text{ or } x>4", False),
    (r"\sqrt{1/m}", r"\frac{1}{\sqrt{m}}", True),
    ("m", r"\sqrt{m^2}", False),
]
TINY = [
    (r"\frac{1}{3^{60}}", r"\frac{1}{3^{61}}", False),
    (r"\frac{1}{3^{60}}", "3^{-60}", True),
    (r"\frac{1}{3^{60}}", "0", False),
    ("0", r"\frac{1}{3^{60}}", False),
    (r"\frac{1}{70!}", r"\frac{1}{71!}", False),
    (r"\frac{1}{2000!}", r"\frac{1}{2001!}", False),
    (r"1-\frac{1}{3^{60}}", "1", False),
    ("0.000000004", "0.000000003", False),
    (r"4\times10^{-9}", "0.000000004", True),
    ("e^{-60}", "e^{-61}", False),
    ("e^{-60}", r"\frac{1}{e^{60}}", True),
    (r"\frac{\sqrt{5}}{10^{18}}", r"\frac{\sqrt{6}}{10^{18}}", False),
    (r"10^{-20}y", r"10^{-21}y", False),
    (r"(\frac{1}{3^{60}},1)", r"(\frac{1}{3^{61}},1)", False),
    (r"\frac17", "0.142857", True),
    (r"\frac17", "0.142858", False),
    (r"\frac17", "0.14", False),
]


@pytest.mark.parametrize(("truth", "answer", "equal"), [*UNITS, *ORDERED, *TINY])
def test_units_order_and_size_count(formulas: Grader, truth: str, answer: str, equal: bool) -> None:
    assert formulas.equal(formulas.extract(rf"It is $\boxed{{{answer}}}$."), truth) is equal
    assert formulas.failures == formulas.timeouts == 0


@given(numerator=st.integers(-(10**6), 10**6), power=st.integers(20, 300), step=st.integers(-3, 3))
def test_exact_values_are_equal_only_if_they_are(numerator: int, power: int, step: int) -> None:
    grader = Grader("math")  # no process: what is exact needs none
    truth = rf"\frac{{{numerator}}}{{2^{{{power}}}}}"
    answer = rf"{numerator} \cdot 2^{{{-(power + step)}}}"
    assert grader.equal(grader.extract(rf"\boxed{{{answer}}}"), truth) is (step == 0 or numerator == 0)


@given(value=st.integers(-(10**9), 10**9), digits=st.sampled_from("0٠०０๐"), sign=st.sampled_from("-−–"))
def test_digits_of_any_script_are_the_same_number(value: int, digits: str, sign: str) -> None:
    written = "".join(chr(ord(digits) + int(d)) for d in str(abs(value)))
    assert extract_number(rf"\boxed{{{sign if value < 0 else ''}{written}}}") == str(value)


PARTS = [
    r"\boxed{",
    "}",
    "{",
    "5",
    "1,000",
    "–",
    "/",
    "^",
    "!",
    " or ",
    "\n\n",
    "Answer:",
    "The answer is ",
    "**",
    "$",
    "A",
    "(B)",
    "<think>",
    "</think>",
    "####",
    "?",
    "Question:",
    " million",
    "%",
    r"\frac",
    r"\\",
    "=",
    "答案是",
    "十二",
    "٣",
    "½",
    "10^{9999}",
    "9999!",
    "wait",
    "<answer>",
    r"\boxed 2",
    r"\text{",
    "e9",
]


@given(
    st.lists(
        st.sampled_from(PARTS),
        max_size=30,
    )
)
def test_nothing_that_a_model_writes_breaks_the_reader(parts: list[str]) -> None:
    text = "".join(parts)
    number, letter = extract_number(text), extract_choice(text)
    assert letter in {None, *"ABCD"}
    if number is not None:
        assert extract_number(rf"\boxed{{{number}}}") == number or len(number) > 100
    if solution(text) is None:
        assert number is letter is None


@pytest.mark.parametrize("parts", [1000, pytest.param(4000, marks=pytest.mark.full)])
def test_a_text_of_many_answers_is_read_in_linear_time(parts: int) -> None:
    for part in (
        "The answer is ",
        "Question: 5?\n",
        r"\boxed{5} or ",
        "I choose ",
        "<answer>",
        "{",
        "5 or ",
        "#### 5\n",
    ):
        text = part * parts
        extract_number(text)
        extract_choice(text)


def test_formulas_without_a_mark_have_their_characters_read_too(formulas: Grader) -> None:
    assert formulas.equal(formulas.extract("So $x = −8$."), "-8")
    assert formulas.equal(formulas.extract("x = –8"), "-8")
    assert formulas.equal(formulas.extract("so $x = ８$"), "8")


def test_an_empty_box_is_none() -> None:
    assert last_boxed(r"$\boxed{19}$, that is $\boxed{}$") == "19"
