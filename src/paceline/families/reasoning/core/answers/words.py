"""Words that answers are made of, in the languages that models write: for "answer", scales, units, thinking.

Tables alone; ``docs/answers.md`` shows them.
"""

from __future__ import annotations

import re

_IS = (
    r"(?:,?\s*(?:therefore|thus|then|hence|clearly|simply|indeed),?\s+)?"
    r"(?:(?:is|are|was|be|equals|becomes|seems|appears|(?:must|should|would|will)\s+be|turns\s+out)(?:\s+to\s+be)?"
    r"(?:\s+(?:therefore|thus|then|hence|simply|just|indeed|clearly|again))?(?:(?!\w)|(?=n['’]t\b))[ \t]*:?"
    r"|[:：=→]|\s[-–—]\s)"
)
_ENGLISH = (
    r"\banswers?\b[*_`\"']*(?:\s*\([^()\n]{0,40}\))?(?:\s+(?:to|for|of)\s[^.:=\n]{0,80}?)?[*_`]*\s*" + _IS
)
_HEADING = r"^[#>*_ \t]*(?:the\s+)?(?:final\s+|correct\s+)?answer[ \t]*[*_:]*[ \t]*$"
_OTHERS = (
    # A connecting word is asked for where the word for "answer" often stands in other sentences.
    r"(?:答案|答え|答えが|正解|解答|正确选项|正確選項)\s*(?:应该|應該|应|應)?\s*(?:[是为為即はが]|[选選](?![项項])|[:：=])*",
    r"(?<![回解应])答\s*[:：]|回答\s*(?:[:：]|は)\s*[:：]?",
    r"(?:정답|답)\s*(?:은|는|이|[:：])\s*[:：]?|답변\s*[:：]",
    r"\b(?:antwort|lösung|ergebnis)\s*(?:(?:lautet|ist|wäre|beträgt)(?:\s+(?:also|daher|somit))?\b|[:：=])\s*:?",
    r"\b(?:réponse|solution)(?:\s+(?:finale|correcte|exacte|juste))?\s*(?:est(?:\s+donc)?\b|[:：=])\s*:?",
    r"\b(?:respuesta|solución)(?:\s+(?:final|correcta))?\s*(?:(?:es|sería)\b|[:：=])\s*:?",
    r"\bresposta(?:\s+(?:final|correta|correcta|certa))?\s*(?:(?:é|és|seria)\b|[:：=])\s*:?",
    r"\brăspuns(?:ul)?(?:\s+(?:final|corect))?\s*(?:(?:este|e)\b|[:：=])\s*:?",
    r"\berantzuna\b\s*(?:da\b)?\s*[:：=]?",
    r"\brisposta(?:\s+(?:finale|corretta|esatta|giusta))?\s*(?:è\b|[:：=])\s*:?",
    r"\bantwoord\s*(?:is\b|[:：=])\s*:?",
    r"\bsvar(?:et|ið)?\s*(?:(?:är|er)\b|[:：=])\s*:?",
    r"\bvasta?us\s*(?:on\b|[:：=])\s*:?",
    r"\b(?:a\s+)?(?:végső\s+|helyes\s+)?válasz\b\s*[:：=]?",
    r"\b(?:atbilde|atsakymas)\s*(?:ir\b|yra\b|[:：=])\s*:?",
    r"\bodpowiedź\s*(?:(?:to|brzmi)\b|[:：=])\s*:?",
    r"\bodpově[dď]\s*(?:(?:je|zní)\b|[:：=])\s*:?",
    r"\b(?:odpoveď|odgovor)\s*(?:(?:je|znie|glasi)\b|[:：=])\s*:?",
    r"\b(?:отговор(?:ът|а)?|одговор|адказ|жауа[пб]\w{0,2}|хариулт)\s*(?:(?:е|је|гэта)\b|[:：=—–-])?\s*:?",
    r"\bответ(?:ом)?\s*(?:(?:равен|это|является|есть)\b|[:：=—–-])?\s*:?",
    r"\bвідповідь\s*(?:(?:це|є)\b|[:：=—–-])?\s*:?",
    r"\b(?:cevap\w{0,2}|yanıt\w{0,2}|cavab\w{0,2}|javob\w{0,2})\s*[:：=]?",
    r"(?:đáp\s+án|đáp\s+số|câu\s+trả\s+lời)(?:\s+(?:đúng|cuối\s+cùng))?\s*(?:là\b|[:：=])\s*:?",
    r"\bjawa(?:b|p)an(?:nya)?(?:\s+(?:akhir|yang\s+benar))?\s*(?:(?:adalah|ialah)\b|[:：=])\s*:?",
    r"(?:الجواب|الإجابة|الاجابة|جواب|إجابة)(?:\s+(?:النهائية?|الصحيحة?))?\s*(?:هو|هي|[:：=])?\s*:?",
    r"پاسخ(?:\s+(?:نهایی|صحیح))?\s*[:：=]?",
    r"(?:התשובה|תשובה)(?:\s+(?:הסופית|הנכונה))?\s*(?:היא|[:：=])?\s*:?",
    r"(?:उत्तर|जवाब|जवाफ)\s*(?:है|हो|आहे|[:：=])?\s*:?",
    r"উত্তর\s*(?:হলো|হল|[:：=])?\s*:?",
    r"(?:જવાબ|ઉત્તર)\s*(?:છે|[:：=])?\s*:?",
    r"(?:ਜਵਾਬ|ਉੱਤਰ)\s*(?:ਹੈ|[:：=])?\s*:?",
    r"(?:సమాధానం|జవాబు|ಉತ್ತರ|ഉത്തരം|பதில்|விடை|පිළිතුර)\s*[:：=]?",
    r"คำตอบ(?:ที่ถูกต้อง|สุดท้าย)?\s*(?:คือ|[:：=])?\s*:?",
    r"(?:ຄຳຕອບ|ចម្លើយ|အဖြေ)\s*(?:ແມ່ນ|គឺ|[:：=])?\s*:?",
    r"\bjibu(?:\s+(?:la\s+mwisho|sahihi))?\s*(?:ni\b|[:：=])\s*:?",
    r"\bsagot\s*(?:ay\b|[:：=])\s*:?",
    r"\bìdáhùn(?:\s+náà)?\s*(?:ni\b|[:：=])\s*:?",
    r"\bimpendulo\s*(?:ithi|yi|[:：=])\s*:?",
    r"\bamsa(?:r)?\s*(?:ita\s+ce|shi\s+ne|[:：=])\s*:?",
    r"\baz[iị]za\s*(?:bụ|[:：=])\s*:?",
    r"መልሱ?\s*[:：፡=]?",
    r"\bպատասխան(?:ը)?\s*[:：=՝]?",
    r"პასუხი(?:ა)?\s*[:：=]?",
    r"\bpërgjigj(?:a|ja)\s*(?:është\b|[:：=])\s*:?",
    r"\bαπάντηση\s*(?:είναι\b|[:：=])?\s*:?",
)
STATED = re.compile(
    rf"(?:{_ENGLISH}|{_HEADING}|{'|'.join(_OTHERS)})(?!\s*(?:\**\s*not\b|n['’]t\b)(?![^.\n]*\bbut\b))",
    re.IGNORECASE | re.MULTILINE,
)
"""What stands before a stated answer: "the answer is", "**Answer:**", a heading, and the same in other languages."""

CORRECTED = re.compile(
    r"\b(?:wait|actually|hmm+|hold on|correct(?:ion|ed|ing)|mistake\w*|error|re-?check\w*|re-?calculat\w*|re-?comput\w*"
    r"|revis\w+|sorry|oops|instead|on second thought|let me|let's|i (?:mis\w+|forgot|missed|dropped|should)|no,)\b"
    r"|等等|不对|重新|\b(?:moment|espera|attendez|attends|подождите|стоп)\b",
    re.IGNORECASE,
)
"""Says that what stands before is given up by the same solution."""

DENIED = re.compile(
    r"\b(?:(?:do|does|can|could|would)(?:\s+not|n['’]t)|cannot|not)\s+(?:think|believe|sure|certain|say|know|conclude)\b[^.!?\n]*$",
    re.IGNORECASE,
)
"""Ends what stands before an answer that is not given: "I don't think that …"."""

UNDECIDED = re.compile(
    r"\b(?:cannot|can['’]t|could\s+not|not\s+possible\s+to|impossible\s+to)\s+(?:be\s+)?(?:determine|tell|say|know|find|solve|answer)\w*"
    r"|\b(?:not\s+enough|insufficient)\s+information\b|\bis\s+unknown\b",
    re.IGNORECASE,
)
"""Says that there is no answer."""

_NEXT = (
    r"question|problem|exercise|puzzle|task|prompt|instruction|frage|aufgabe|pregunta|problema|pergunta|domanda|exercice"
    r"|вопрос|задача|السؤال|प्रश्न|soal|问题|题目|問題|例题|질문|문제"
)
NEXT_QUESTION = re.compile(
    rf"^[ \t]*(?:[#>*_-]+[ \t]*)*(?:\d+[.)][ \t]*)?[\[<(]?(?:(?:new|next|another|sample|similar)[ \t]+)?"
    rf"(?:(?:{_NEXT})[ \t]*(?:\#?\d+)?[ \t]*(?:[*_]*[:：.)\]>][*_]*|[*_]*[ \t]*$)|q[ \t]*\d*[ \t]*[*_]*[:：.)]"
    r"|(?:human|user)[ \t]*:|example[ \t]*\d+)",
    re.IGNORECASE | re.MULTILINE,
)
"""Begins a question that the model asks itself."""

ANSWERS_IT = re.compile(
    r"^[#>*_ \t]*(?:a|answer|solution|response)[*_ \t]*[:：]", re.IGNORECASE | re.MULTILINE
)
"""Begins the answer to a question that the model asks itself."""
ASKS = re.compile(
    r"\b(?:how\s+(?:many|much|long|far|old|tall)|what|which|find|calculate|determine|who|when|where)\b[^?]*\?",
    re.IGNORECASE,
)
CHECKS = re.compile(
    r"\b(?:check|verify|verif\w+|sense|reasonable|right|sure|correct|i|we|my|our)\b", re.IGNORECASE
)
"""Says that a question is about the solution itself."""

THINKS = re.compile(
    r"(?<!`)<(?:think|thinking|thought|thoughts|reasoning|analysis|scratchpad|seed:think)>|◁think▷|\[THINK\]"
    r"|<\|begin_of_thought\|>|<\|channel\|>analysis|\Aanalysis(?=[A-Z])",
    re.IGNORECASE,
)
THOUGHT = re.compile(
    r"</(?:think|thinking|thought|thoughts|reasoning|analysis|scratchpad|seed:think)>|◁/think▷|\[/THINK\]"
    r"|<\|end_of_thought\|>|<\|channel\|>final(?:<\|message\|>)?|assistantfinal",
    re.IGNORECASE,
)
"""Where thinking begins and ends, as templates of models write it."""
ENDS = re.compile(
    r"<\|(?:endoftext|im_end|eot_id|end_of_text|end|return|im_start)\|>|</s>|<eos>|<end_of_turn>"
)
"""Ends of texts that were decoded as text."""

SCALES: dict[str, int] = {
    **dict.fromkeys(("hundred", "百"), 10**2),
    **dict.fromkeys(
        ("thousand", "thousands", "tausend", "mille", "mil", "тысяч", "тысячи", "тыс", "千"), 10**3
    ),
    **dict.fromkeys(("万", "萬", "만"), 10**4),
    **dict.fromkeys(("lakh", "lakhs", "लाख"), 10**5),
    **dict.fromkeys(
        (
            *("million", "millions", "mln", "mio", "millionen", "millones", "millón", "milhões", "milioni"),
            *("миллион", "миллиона", "миллионов", "млн", "مليون"),
        ),
        10**6,
    ),
    **dict.fromkeys(("crore", "crores", "करोड़"), 10**7),
    **dict.fromkeys(("亿", "億", "억"), 10**8),
    **dict.fromkeys(
        (
            *("billion", "billions", "bn", "bln", "mrd", "milliarde", "milliarden", "milliard", "milliards"),
            *("миллиард", "миллиарда", "миллиардов", "млрд", "مليار"),
        ),
        10**9,
    ),
    **dict.fromkeys(("trillion", "trillions", "tn"), 10**12),
}
"""Words behind a number that multiply it. "Billones" and "dozen" are left out: they mean different things."""
ATTACHED = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}
"""Letters that multiply a number where they touch it; ``m``, ``b`` and those behind a space may be units."""

_UNITS_OF_MEASURE: dict[str, str] = {
    "mm": "millimeter millimeters millimetre millimetres",
    "cm": "centimeter centimeters centimetre centimetres",
    "m": "meter meters metre metres",
    "km": "kilometer kilometers kilometre kilometres kms",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard yards",
    "mi": "mile miles",
    "mg": "milligram milligrams",
    "g": "gram grams",
    "kg": "kilogram kilograms kgs",
    "lb": "pound pounds lbs",
    "oz": "ounce ounces",
    "ml": "milliliter milliliters millilitre millilitres mL",
    "l": "liter liters litre litres L",
    "gal": "gallon gallons",
    "ms": "millisecond milliseconds",
    "s": "second seconds sec secs",
    "min": "minute minutes mins",
    "h": "hour hours hr hrs",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "year": "years yr yrs",
    "°": "degree degrees deg",
    "rad": "radian radians",
    "$": "dollar dollars USD",
    "cent": "cents",
    "€": "euro euros EUR",
    "£": "GBP",
    "mi/h": "mph",
    "km/h": "kph kmh",
    "J": "joule joules",
    "N": "newton newtons",
    "W": "watt watts",
    "Hz": "hertz",
}
UNITS: dict[str, str] = {
    name: unit for unit, names in _UNITS_OF_MEASURE.items() for name in (unit, *names.split())
}
"""Units of measure that are told apart, by their names; other words beside a number are labels and do not count."""
