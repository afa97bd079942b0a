# ruff: noqa: E501 (a line of Han or Hangul is wide for its letters)
"""A small corpus for bounds: prose in several scripts, code, JSON and base64, written for this project."""

import base64
import hashlib

ENGLISH = """The sluice keeper walks the length of the canal before breakfast, reading each gauge twice and writing the level
in a book that his grandmother began. When the reservoir is low he opens nothing, whatever the mills may say; when the
spring melt comes down from the hills he lets it through a hand's breadth at a time. People ask him how he knows. He says
that water which is not there cannot be lent, and that a promise made at the gate is the only one that anybody measures."""

SPANISH = """El guardián de la compuerta recorre el canal antes del desayuno, lee cada regla dos veces y anota el nivel en
un cuaderno que empezó su abuela. Cuando el embalse está bajo no abre nada, digan lo que digan los molinos; cuando llega el
deshielo de la montaña lo deja pasar poco a poco, un palmo cada vez. La gente le pregunta cómo lo sabe. Él contesta que el
agua que no está no se puede prestar, y que la única promesa que alguien mide es la que se hace en la compuerta."""

RUSSIAN = """Смотритель шлюза каждое утро проходит вдоль канала, дважды читает каждую рейку и записывает уровень в тетрадь,
которую начала ещё его бабушка. Когда воды в водохранилище мало, он ничего не открывает, что бы ни говорили мельники; когда
с холмов сходит весенняя вода, он пропускает её понемногу, на ладонь за раз. Люди спрашивают, откуда он знает. Он отвечает,
что воду, которой нет, нельзя дать взаймы, и что измеряют только то обещание, которое дано у ворот."""

CHINESE = """水闸的看守人每天早饭以前沿着运河走一遍，把每一根水尺读两次，再把水位记在祖母留下的本子里。水库水少的时候，不管磨坊主怎么说，
他一扇闸门也不开；春天山上的雪水下来，他就一次只放一掌宽的水。人们问他是怎么知道的。他说，没有的水是借不出去的，而在闸门前许下的诺言，
是唯一有人真正去量的诺言。村里的孩子们都喜欢听他讲那一年大旱的故事。"""

JAPANESE = """水門の番人は朝食の前に運河に沿って歩き、目盛りを二度ずつ読み、祖母が書き始めた帳面に水位を書き留める。貯水池の水が少ないときは、
粉ひきたちが何と言おうと門を開けない。春になって山の雪解け水が下りてくると、手のひらの幅ずつ通してやる。どうして分かるのかと人に聞かれると、
ないものは貸せないし、門のところでした約束だけが誰かに測られる約束なのだと答える。"""

ARABIC = """يمشي حارس البوابة على طول القناة قبل الفطور، ويقرأ كل مقياس مرتين، ويكتب مستوى الماء في دفتر بدأته جدته. عندما يقل الماء
في الخزان لا يفتح شيئا مهما قال أصحاب الطواحين، وعندما ينزل ماء الثلوج من التلال في الربيع يتركه يمر قليلا قليلا. يسأله الناس كيف
يعرف، فيقول إن الماء غير الموجود لا يمكن إقراضه، وإن الوعد الوحيد الذي يقيسه أحد هو الوعد الذي يقطع عند البوابة."""

HINDI = """जलद्वार का रखवाला नाश्ते से पहले नहर के किनारे चलता है, हर पैमाने को दो बार पढ़ता है और जल का स्तर उस बही में लिखता है जिसे उसकी
दादी ने शुरू किया था। जब जलाशय में पानी कम होता है तब चक्की वाले कुछ भी कहें, वह कुछ नहीं खोलता; जब वसंत में पहाड़ों से बर्फ का पानी
उतरता है तो वह उसे थोड़ा थोड़ा करके जाने देता है। लोग पूछते हैं कि उसे कैसे पता चलता है। वह कहता है कि जो पानी है ही नहीं उसे उधार नहीं
दिया जा सकता।"""

KOREAN = """수문을 지키는 사람은 아침을 먹기 전에 운하를 따라 걸으며 눈금을 두 번씩 읽고, 할머니가 쓰기 시작한 공책에 수위를 적는다. 저수지에 물이 적으면
방앗간 주인들이 뭐라고 하든 아무것도 열지 않는다. 봄이 되어 산에서 눈 녹은 물이 내려오면 손바닥 너비만큼씩만 흘려보낸다."""

PYTHON = '''
def settle(counters: dict[str, Counter], lines: Iterable[Line], spent: int) -> bool:
    """Moves what was held to what was spent, once."""
    for line in sorted(lines, key=lambda line: (line.budget, line.key)):
        counter = counters.get(line.budget)
        if counter is None or line.bucket not in counter.buckets:
            continue  # The budget is gone, or its window has left.
        counter.held -= line.amount
        counter.spent += min(spent, line.amount)
        assert counter.held >= 0, f"{line.budget}: held {counter.held!r}"
    return all(counter.held == 0 for counter in counters.values())
'''

GO = """
func (g *Gate) Reserve(ctx context.Context, want int64) (*Hold, error) {
\tg.mu.Lock()
\tdefer g.mu.Unlock()
\tfor i, w := range g.windows {
\t\tif w.spent+w.held+want > w.limit {
\t\t\treturn nil, fmt.Errorf("window %d: %w (spent=%d held=%d limit=%d)", i, ErrExhausted, w.spent, w.held, w.limit)
\t\t}
\t}
\treturn &Hold{id: uuid.New(), amount: want}, nil
}
"""

JSON = """{"data": [{"id": 1843203, "lat": 48.137154, "lon": 11.576124, "readings": [0.0041, 12.7, 13.25, 998.1, 1003]},
{"id": 1843204, "lat": 47.000001, "lon": 9.530952, "readings": [0.0039, 12.9, 13.75, 997.4, 1002], "flags": null},
{"id": 1843205, "lat": 46.519653, "lon": 6.632273, "readings": [], "flags": {"manual": true, "source": "gauge-07/b"}}],
"next": "/v2/levels?cursor=eyJvIjoxMjgsInQiOjE3MDk0MjU2MDB9&limit=50", "total": 20481, "took_ms": 37}"""

LOG = """2026-03-02T12:00:00.103Z INFO  reservation_settled id=018e01b3f2c7a9d4 provider=moonshot reserved_tokens=16924 spent_tokens=15310
2026-03-02T12:00:00.951Z WARN  provider_failed id=018e01b3f2c7a9d5 provider=groq status=503 retry_after_s=2.5 attempt=1/2
2026-03-02T12:00:03.482Z INFO  reservation_settled id=018e01b3f2c7a9d6 provider=groq reserved_tokens=2310 spent_tokens=1187"""

BASE64 = base64.b64encode(b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(24))).decode()

MARKDOWN = """## Levels this week

| gauge | Monday | Tuesday | change |
|-------|-------:|--------:|-------:|
| north | 12.40  | 12.10   | -2.4 % |
| south |  9.95  | 10.20   | +2.5 % |

- [x] read *every* gauge **twice**
- [ ] ask `mill-3` about its 40 % share, see <https://example.org/mills?id=3#share>
"""

EMOJI = "Opened 🌊 by a hand ✋🏽, closed 🔒 again. Family 👨‍👩‍👧‍👦 visit at 5 ☕️… it’s “fine” — naïve café, 3½ cups, 20 °C."

TEXTS = {
    "english": ENGLISH,
    "spanish": SPANISH,
    "russian": RUSSIAN,
    "chinese": CHINESE,
    "japanese": JAPANESE,
    "arabic": ARABIC,
    "hindi": HINDI,
    "korean": KOREAN,
    "python": PYTHON,
    "go": GO,
    "json": JSON,
    "log": LOG,
    "base64": BASE64,
    "markdown": MARKDOWN,
    "emoji": EMOJI,
}
