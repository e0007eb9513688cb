"""Templates for everyday sentences, and the words for their blanks.

A blank `{name}` is drawn from `blanks()["name"]`; `{word}`, `{count}`, `{small}`, `{year}`, `{rank}`, `{clock}`
and `{digits}` are drawn by `texts.py` from the dictionary and from the numbers.
"""

from __future__ import annotations

from functools import cache

_WORDS = {
    "name": (
        "Adam Alice Amir Amy Andrew Anna Arthur Barbara Ben Beth Carlos Caroline Charles Chloe Clara Daniel David "
        "Diana Dora Edward Elena Eliza Emma Eric Ethan Eva Felix Fiona Frank George Grace Hannah Harry Helen Henry "
        "Hugo Ida Irene Isaac Jack James Jane Jason Joan John Joseph Judith Julia Karen Kate Kevin Laura Leo Liam "
        "Linda Louis Lucy Margaret Maria Mark Martha Martin Mary Maya Michael Miguel Nadia Nancy Nathan Nina Noah "
        "Nora Oliver Olga Oscar Patrick Paul Peter Philip Rachel Ralph Rebecca Robert Rose Ruth Sam Sarah Simon "
        "Sophie Stephen Susan Theo Thomas Tina Victor Violet Walter William Yusuf Zoe"
    ),
    "surname": (
        "Abbott Anderson Baker Barnes Bennett Brooks Campbell Carter Chapman Clark Collins Cooper Davies Dixon Edwards "
        "Evans Fisher Foster Garcia Gibson Grant Green Griffin Hall Harper Harris Hughes Jackson Jenkins Johnson "
        "Jordan Keller Kennedy King Lambert Lawson Lewis Marshall Mason Miller Morgan Murphy Nelson Newton Palmer "
        "Parker Perry Porter Powell Reynolds Richards Roberts Russell Sanders Shaw Simpson Spencer Stewart Taylor "
        "Thompson Turner Vaughan Walker Watson Webster Wilson Young"
    ),
    "thing": (
        "apple bag ball basket bed bell bicycle boat book bottle bowl box bread brush bucket button cake camera candle "
        "car carpet chair cheese clock coat coin cup curtain desk dish door dress drum egg engine envelope fence flag "
        "flute fork garden glass glove guitar hammer hat horse house jacket jar kettle key kite knife ladder lamp "
        "letter lock map mirror needle newspaper orange oven package painting paper pencil phone piano picture pillow "
        "pipe plate pocket pot potato purse radio ribbon ring road roof rope saddle sandwich scarf shelf shoe shovel "
        "soap sock spoon stone suitcase sweater table teapot tent ticket towel toy train tray tree truck umbrella vase "
        "violin wagon wallet watch wheel whistle window wire yard"
    ),
    "quality": (
        "awful big blue bright broken brown cheap clean cold cozy curious dark deep dirty dry dusty early easy empty "
        "enormous fancy fast fine flat fresh funny gentle golden good gray green happy hard heavy high hot huge icy "
        "large lazy light little long loose loud lovely narrow new noisy odd old orange pale perfect plain pretty "
        "proud purple quick quiet rare red rich rough round rusty sad sharp shiny short silent silver simple slow "
        "small smooth soft square strange strong sweet tall thick thin tiny tired ugly useful warm weak wet white wide "
        "wild wise wooden yellow young"
    ),
    "did": (
        "bought borrowed broke brought carried caught chose cleaned counted described dropped examined fetched fixed "
        "followed forgot found guarded held hid ignored invented kept kicked lifted lost loved measured missed moved "
        "needed noticed offered opened ordered packed painted photographed picked polished pulled pushed put repaired "
        "returned saved saw sent shook showed sold spilled stole threw took touched traded used wanted washed watched "
        "wrapped"
    ),
    "do": (
        "bring buy carry catch check choose clean close count cover draw drop fetch fill find fix fold follow hide "
        "hold keep leave lift lock measure mend mention move open pack paint pass pick pull push reach remember repair "
        "return save sell send share shake show store take throw touch trade turn use wash watch weigh wrap"
    ),
    "feeling": (
        "afraid amused angry ashamed bored busy calm careful cheerful confused curious eager exhausted glad grateful "
        "hungry ill impatient jealous lonely lucky nervous patient pleased proud puzzled relieved satisfied serious "
        "shocked shy silly sleepy sorry sure surprised thirsty upset worried"
    ),
    "month": ("January February March April May June July August September October November December"),
}

_PHRASES = {
    "place": (
        "Africa|Boston|Canada|Chicago|Dublin|Egypt|Finland|Florida|France|Geneva|Greece|Houston|Iceland|India|Japan|"
        "Kenya|Lisbon|London|Madrid|Maine|Mexico|Montana|Norway|Oregon|Oxford|Paris|Peru|Poland|Rome|Seattle|Spain|"
        "Sweden|Texas|Toronto|Turkey|Vienna|Wales|Warsaw|York|Zurich|the airport|the bakery|the bridge|the castle|"
        "the church|the corner shop|the factory|the farm|the garage|the harbor|the hospital|the library|the market|"
        "the museum|the old mill|the park|the river|the school|the station|the theater|the village|the zoo"
    ),
    "person": (
        "my brother|my sister|my aunt|my uncle|your mother|her father|his cousin|our neighbor|the baker|the doctor|"
        "the driver|the farmer|the judge|the lawyer|the manager|the nurse|the pilot|the plumber|the teacher|the tailor|"
        "the captain|the painter|the old man|the young woman|the girl next door|that boy|a stranger|nobody|everyone|"
        "somebody|one of the guests|the whole family|the children's teacher|her best friend|their landlord"
    ),
    "went": (
        "arrived at|drove to|came back from|walked to|ran from|traveled to|waited near|lived near|moved to|flew over|"
        "got lost near|looked for|talked about|dreamed of|stayed close to|hurried to|returned to|left for"
    ),
    "when": (
        "yesterday|today|tomorrow morning|last night|last week|on Monday|on Tuesday|on Wednesday|on Thursday|on Friday|"
        "on Saturday|on Sunday|in January|in February|in March|in April|in June|in July|in August|in September|"
        "in October|in November|in December|before breakfast|after lunch|at dinner|at noon|at midnight|every evening|"
        "twice a year|once a month|all day long|a long time ago|just now|as usual|for the first time|in the rain|"
        "by accident|without a word|on the way home|during the summer|in winter|before sunrise|after the storm"
    ),
    "answer": (
        "Yes|No|Maybe|Of course|Certainly|Never|Always|Not yet|Not at all|Perhaps|Sure|Thanks|Thank you|Sorry|Please|"
        "Hello|Good morning|Good night|Goodbye|Exactly|Right|Wrong|Fine|Okay|Well|Really|Indeed|Oh no|Hurry up|"
        "Welcome|Excuse me|No problem|I see|I think so|I doubt it|Who knows|Why not|Nothing|Nobody|Later|Soon|"
        "Absolutely|Hardly|Enough|Look out|Come in|Go on|Stop it|Wait a moment|Good idea|Too late|Almost"
    ),
    "unit": (
        "days|weeks|months|years|hours|minutes|miles|inches|pounds|dollars|cents|degrees|people|pages|steps|"
        "bottles of milk|sheets of paper|pieces|chairs|boxes|tickets|horses|children|questions|percent|gallons"
    ),
    "link": ("and|but|because|so|although|while|until|after|before|as if|unless|since"),
}

TEMPLATES: dict[str, tuple[str, ...]] = {
    "everyday": (
        "{person} {did} a {quality} {thing} {when}.",
        "{name} {went} {place} {when}.",
        "The {quality} {thing} belongs to {name} {surname}.",
        "{person} was {feeling} {link} the {thing} looked {quality}.",
        "There is a {quality} {thing} under the {quality} {thing}.",
        "I {did} the {thing} and {did} the {word}.",
        "We have never {went} {place} {when}.",
        "{name} said that {person} {did} the {quality} {thing}.",
        "It was {quality}, {quality} and rather {quality} near {place}.",
        "Nobody {did} the {thing} {link} {name} {went} {place}.",
        "When {person} {went} {place}, the {thing} was {quality}.",
        "{when}, {name} felt {feeling} about the {word}.",
        "If you {do} the {thing}, {person} will be {feeling}.",
        "They {did} it {when}, not {when}.",
        "The {word} near {place} is too {quality} for a {thing}.",
        "{person} would rather {do} a {thing} than {do} the {word}.",
        "She is {feeling}, he is {feeling}, and I am {feeling}.",
        "You can {do} the {quality} {thing} {when}.",
        "This {thing} is more {quality} than that {thing}.",
        "He {did} and {did} it, {link} {name} was {feeling}.",
        "That {word} was {quality}, wasn't it, {name}?",
        "I don't {do} the {thing}; {person} does.",
        "{name}'s {thing} isn't as {quality} as {name}'s {thing}.",
        "Between the {thing} and the {thing} lay a {quality} {word}.",
    ),
    "question": (
        "Where did {name} {do} the {quality} {thing}?",
        "Why is {person} so {feeling} {when}?",
        "Who {did} the {thing} {when}?",
        "Do you {do} the {thing} {when}?",
        "Can {name} {do} a {quality} {thing} near {place}?",
        "How many {unit} does a {quality} {thing} need?",
        "What is a {word}, {name}?",
        "Have you {went} {place} {when}?",
        "Is the {thing} {quality} or {quality}?",
        "When will {person} {do} the {word}?",
        "Would you like {thing} or {thing}?",
        "Which {thing} did {name} {surname} {do}?",
        "Are you {feeling}, or just {feeling}?",
        "Did {person} say {word} or {word}?",
        "Isn't that {name}'s {quality} {thing}?",
        "Shall we {do} it {when}, or {when}?",
    ),
    "command": (
        "{do} the {thing}!",
        "{do} that {quality} {thing}, please.",
        "Please {do} the {word}, {name}.",
        "{name}, {do} the {thing}!",
        "Don't {do} the {quality} {thing}.",
        "{do} it {when}.",
        "Never {do} a {word}!",
        "{do} the {thing} and {do} the {thing}.",
        "Let's {do} a {thing} {when}.",
        "Go to {place}, {name}.",
        "Be {feeling}, {name}!",
        "Stop! {do} the {word}.",
        "Look at the {quality} {word}!",
    ),
    "list": (
        "{thing}, {thing}, {thing} and {thing}.",
        "We need a {thing}, a {quality} {thing}, {count} {unit} and a {word}.",
        "{name}, {name}, {name} and {name} {went} {place}.",
        "Bring {thing}, {word}, {thing} and {word}.",
        "The colors were {quality}, {quality}, {quality} and {quality}.",
        "First {do}, then {do}, and finally {do}.",
        "{place}, {place}, and {place}.",
        "It came with the following: {word}, {word}, {word}.",
        "{word}; {word}; {word}; {word}.",
        "Neither the {thing}, nor the {thing}, nor the {word}.",
    ),
    "number": (
        "It takes {count} {unit} to {do} a {thing}.",
        "{count}.",
        "{count}, {count}, {count}.",
        "In {year}, {name} {went} {place}.",
        "The train to {place} leaves at {clock}.",
        "My number is {digits}.",
        "Call me at {clock} on {digits}.",
        "{person} won the {rank} prize in {year}.",
        "Turn to page {count}, line {small}.",
        "{count} plus {count} makes {count}.",
        "The {thing} costs {small} dollars and {small} cents.",
        "He was {small} years old in {year}.",
        "It is {clock}, and {small} {unit} are left.",
        "About {count} people live near {place}.",
        "Room {digits} is on the {rank} floor.",
        "Is it {count} or {count} {unit}?",
        "The {rank} of {month}, {year}.",
        "Only {small} of the {small} {unit} were {quality}.",
        "Between {year} and {year}, the {word} grew by {small} percent.",
    ),
    "name": (
        "{name} {surname}.",
        "My name is {name} {surname}.",
        "This is {name}, and that is {name} {surname}.",
        "Hello, {name}, this is {name} from {place}.",
        "Mister {surname} and Missus {surname} are {feeling}.",
        "Doctor {surname} {went} {place} {when}.",
        "{name} and {name} {did} {name}'s {thing}.",
        "Have you met {name} {surname} from {place}?",
        "Dear {name}, I am {feeling}.",
        "{surname}, {name}: {small}, {place}.",
        "Good evening, Miss {surname}, I am {feeling}.",
        "{name} {surname} and {name} {surname}.",
    ),
    "answer": (
        "{answer}, {name}.",
        "{answer}.",
        "{answer}!",
        "{answer}, {answer}.",
        "{answer}, {name} {surname}!",
        "{answer}, {word}.",
        "{answer}? {answer}.",
        "{word}?",
        "{answer}, I'm {feeling}.",
        "{answer}, that's {quality}.",
        "A {word}.",
        "The {quality} {thing}.",
        "Not {word}, {word}.",
    ),
}


@cache
def blanks() -> dict[str, tuple[str, ...]]:
    """The choices for each blank."""
    words = {name: tuple(text.split()) for name, text in _WORDS.items()}
    return words | {name: tuple(text.split("|")) for name, text in _PHRASES.items()}
