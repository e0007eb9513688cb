"""A text without anything to say is refused instead of being spoken for a minute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.errors import PromptError
from backend.serving.speech.audio_stream import AudioStream
from backend.serving.speech.text_check import check_text

NOTHING = {
    "dots": ".",
    "punctuation": "?!…—",
    "zero-width": "\u200b\u200c\u200d\ufeff",
    "combining": "\u0301\u0308",
    "fillers": "\u115f\u3164",
    "emoji": "🙂",
    "private": "\ue000",
    "controls": "\x00\x07",
}


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("length", [1, 4096])
def test_nothing_to_say_is_refused(name, length):
    with pytest.raises(PromptError, match="letter"):
        check_text((NOTHING[name] * length)[:length])


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("text", ["Hi.{}", "{}Hi.", "a{}b", "e{}"])
def test_a_word_does_not_carry_thousands_of_them(name, text):
    with pytest.raises(PromptError, match="cannot be said"):
        check_text(text.format(NOTHING[name] * 4000))


def test_words_between_them_carry_no_more_than_their_number():
    with pytest.raises(PromptError, match="cannot be said"):
        check_text(("a" + "\u0301" * 20) * 200)


@pytest.mark.parametrize(
    "text",
    [
        "Hm.", "3", "€", "Wait... what?!", "Tiếng Việt rất hay, ừ nhỉ?", "שָׁלוֹם עֲלֵיכֶם " * 50, "नमस्ते, आप कैसे हैं? " * 50,
        "สวัสดีครับ ผมชื่อ " * 50, "今天很好。我们走吧！", "می‌خواهم " * 50, "A heading\n" + "-" * 80 + "\n\nA paragraph.",
        "Well" + "." * 90 + " yes", "Nice 👩‍👩‍👧‍👦❤️ day", "a\u0300\u0301\u0302 " * 200,
    ],
)  # fmt: skip
def test_texts_of_people_are_accepted(text):
    check_text(text)


def test_what_stands_between_paragraphs_is_not_spoken(engine, request_of):

    stream = AudioStream.of_engine(engine, replace(request_of, text="Hi.\n\n* * *\n\nHo."), streaming=False)
    stream.close()
    assert stream.segments == ("Hi.", "Ho.")
