"""A stated answer is read in the languages of multilingual sets, and not the number that is mentioned behind it."""

from __future__ import annotations

import pytest

from paceline.families.reasoning.core.answers.places import is_stated
from paceline.families.reasoning.core.grading.free_text import Grader

STATED = {
    "Afrikaans": "Die antwoord is 71.\n\nDit het 3 stappe geneem.",
    "Albanian": "Përgjigja është 71. Ishin 3 hapa.",
    "Amharic": "መልሱ 71 ነው። 3 ደረጃዎች ነበሩ።",
    "Arabic": "الإجابة: ٧١\n\nفي ٣ خطوات.",
    "Armenian": "Պատասխանը՝ 71\n\n3 քայլ։",
    "Azerbaijani": "Cavab: 71\n\n3 addım.",
    "Basque": "Erantzuna 71 da. 3 urrats izan dira.",
    "Belarusian": "Адказ: 71\n\nБыло 3 крокі.",
    "Bengali": "উত্তর: ৭১\n\n৩ টি ধাপ।",
    "Bulgarian": "Отговорът е 71. Имаше 3 стъпки.",
    "Burmese": "အဖြေ: 71\n\nအဆင့် 3 ဆင့်",
    "Catalan": "La resposta és 71. Hi ha hagut 3 passos.",
    "Croatian": "Odgovor je 71. Bila su 3 koraka.",
    "Czech": "Odpověď: 71\n\nByly to 3 kroky.",
    "Danish": "Svaret er 71. Der var 3 trin.",
    "Estonian": "Vastus on 71. Samme oli 3.",
    "Filipino": "Ang sagot ay 71. May 3 hakbang.",
    "Finnish": "Vastaus on 71. Vaiheita oli 3.",
    "Georgian": "პასუხი: 71\n\n3 ნაბიჯი",
    "Greek": "Η απάντηση είναι 71. Ήταν 3 βήματα.",
    "Gujarati": "જવાબ: 71\n\n3 પગલાં",
    "Hausa": "Amsar ita ce 71. Matakai 3 ne.",
    "Hindi": "उत्तर: 71\n\n3 चरण",
    "Hungarian": "A válasz 71. Ez 3 lépés volt.",
    "Icelandic": "Svarið er 71. Skrefin voru 3.",
    "Igbo": "Azịza bụ 71. Nzọụkwụ 3.",
    "Japanese, formal": "回答は71です。手順は3つでした。",
    "Kannada": "ಉತ್ತರ: 71\n\n3 ಹಂತಗಳು",
    "Kazakh": "Жауабы: 71\n\n3 қадам.",
    "Khmer": "ចម្លើយគឺ 71\n\n3 ជំហាន",
    "Korean, formal": "답변: 71\n\n3 단계.",
    "Lao": "ຄຳຕອບແມ່ນ 71\n\n3 ຂັ້ນຕອນ",
    "Latvian": "Atbilde ir 71. Bija 3 soļi.",
    "Lithuanian": "Atsakymas yra 71. Buvo 3 žingsniai.",
    "Malay": "Jawapannya ialah 71. Ada 3 langkah.",
    "Malayalam": "ഉത്തരം: 71\n\n3 ഘട്ടങ്ങൾ",
    "Marathi": "उत्तर 71 आहे. 3 पायऱ्या.",
    "Nepali": "जवाफ: 71\n\n3 चरण",
    "Punjabi": "ਜਵਾਬ: 71\n\n3 ਕਦਮ",
    "Romanian": "Răspunsul este 71. Au fost 3 pași.",
    "Serbian": "Одговор је 71. Била су 3 корака.",
    "Sinhala": "පිළිතුර: 71\n\nපියවර 3",
    "Slovak": "Odpoveď je 71. Boli to 3 kroky.",
    "Swahili": "Jibu ni 71. Kulikuwa na hatua 3.",
    "Tamil": "விடை: 71\n\n3 படிகள்",
    "Telugu": "జవాబు: 71\n\n3 దశలు",
    "Turkish": "Yanıt: 71\n\n3 adım.",
    "Uzbek": "Javob: 71\n\n3 qadam.",
    "Yoruba": "Ìdáhùn ni 71. Ìgbésẹ̀ 3.",
    "Zulu": "Impendulo ithi 71. Kube nezinyathelo ezi-3.",
}
NOT_STATED = {
    "Swahili": "Alijibu maswali 4 kati ya 9.",
    "Finnish": "Hän vastasi 4 kysymykseen 9 kysymyksestä.",
    "Hungarian": "A válaszok száma 4 volt, és 9 kérdés maradt.",
    "Hausa": "Ya amsa tambayoyi 4 cikin 9.",
    "Estonian": "Ta vastas 4 küsimusele 9-st.",
    "Chinese": "他回答了 4 个问题，还剩 9 个。",
    "Korean": "답변자 4명 중 9개",
    "Korean, of a reply": "제 답변은 4단계이고 문제는 9개입니다.",
    "Basque": "Galderak erantzun ditut: 4 eta 9.",
}
"""Forms of "to answer" that state nothing: the last number counts."""
LETTERS = {
    "Arabic": "الإجابة: ب",
    "Bengali": "উত্তর: ঘ",
    "Hindi": "उत्तर: (ग)",
    "Thai": "คำตอบคือ ค",
    "Hebrew": "התשובה היא ג.",
    "Telugu": "సమాధానం: B",
    "Korean": "답변: D",
    "Japanese": "回答: A",
    "Chinese": "答案是丙。",
}
EXPECTED = dict(zip(LETTERS, "BDCCCBDAC", strict=True))


@pytest.mark.parametrize("language", STATED)
def test_a_stated_number_is_read_in(language: str) -> None:
    with Grader("number") as grader:
        assert grader.extract(STATED[language]) == "71"
        assert (grader.read, grader.unstated) == (1, 0)


@pytest.mark.parametrize("language", NOT_STATED)
def test_other_forms_of_the_word_state_nothing_in(language: str) -> None:
    with Grader("number") as grader:
        assert grader.extract(NOT_STATED[language]) == "9"
        assert (grader.read, grader.unstated) == (1, 1)


@pytest.mark.parametrize("language", LETTERS)
def test_a_stated_letter_is_read_in(language: str) -> None:
    with Grader("choice") as grader:
        assert grader.extract(LETTERS[language]) == EXPECTED[language]


@pytest.mark.parametrize(
    "text", ["الجواب: جميع ما سبق", "উত্তর: কলকাতা", "उत्तर: गंगा", "答案是丙烷", "คำตอบคือ คน"]
)
def test_a_word_that_begins_with_such_a_letter_is_none(text: str) -> None:
    with Grader("choice") as grader:
        assert grader.extract(text) is None


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (r"So \boxed{4}.", True),
        ("#### 4", True),
        ("<answer>4</answer>", True),
        ("The answer is 4.", True),
        ("That leaves 4 apples.", False),
        ("<think>The answer is 4", False),
        ("", False),
    ],
)
def test_whether_an_answer_is_stated_is_told(text: str, stated: bool) -> None:
    assert is_stated(text) == stated


def test_answers_that_nothing_states_are_counted() -> None:
    with Grader("number") as grader:
        grader.extract_all(["The answer is 4.", "That leaves 4 apples.", "no number", "#### 4"])
        assert grader.reading_facts() == {"answers_read": 3, "answers_unstated": 1}
