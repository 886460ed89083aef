"""Texts in each script, written for this project, as long as a prompt of a paragraph or two."""
# ruff: noqa: RUF001 - letters that look like Latin ones are the subject

import base64

ENGLISH = """The harbour was quiet when the first boats came back. Nobody had slept much, and the light over the water looked
thin and grey, as if it had been washed too often. Martha counted the crates twice, wrote the number on the back of an
envelope, and waited for the man from the market to argue about the price. He always argued. It was part of the morning, like
the coffee and the gulls. When he finally arrived he only nodded, paid what she asked, and said that his brother would not be
coming any more. She did not ask why. Later she thought about it on the bus, looking at the fields, and decided that most of
the things people tell you in passing are the ones they have carried for the longest time."""

JSON = """Here is the order that failed yesterday. Please explain which field is wrong and return a corrected copy:
{"order_id": 48213, "customer": {"name": "Ada Novak", "email": "ada@example.org", "vip": true}, "items": [{"sku": "TX-119",
"quantity": 3, "unit_price": 12.50, "tags": ["fragile", "gift"]}, {"sku": "LM-200", "quantity": 1, "unit_price": 89.00}],
"shipping": {"method": "express", "country": "CZ", "postcode": "11000"}, "notes": null, "created_at": "2026-03-14T09:26:53Z"}
The customer says that the total on her invoice does not match the sum of the items, and that the parcel was sent to the old
address although she changed it a week before. Keep the answer short and do not change the identifiers."""

PYTHON = '''def merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join intervals that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


class RetryQueue:
    def __init__(self, clock, max_attempts=5):
        self._clock = clock
        self._items = {}
        self.max_attempts = max_attempts

    def push(self, key, delay=0.5):
        attempt = self._items.get(key, 0) + 1
        if attempt > self.max_attempts:
            raise RuntimeError(f"gave up on {key!r} after {attempt - 1} attempts")
        self._items[key] = attempt
        return self._clock.now() + delay * 2 ** (attempt - 1)
'''

RUSSIAN = """Утром в деревне было тихо, и только за рекой кто-то стучал топором. Старик вышел на крыльцо, посмотрел на небо и решил,
что дождя сегодня не будет. Он поставил чайник, нашёл в шкафу сахар и долго искал очки, которые лежали у него на лбу. Соседка
принесла молоко и рассказала, что в магазин привезли свежий хлеб. Они поговорили о детях, о ценах и о том, как раньше всё было
иначе. Потом он взял удочку и пошёл к реке, хотя знал, что рыбы там почти не осталось."""

ARABIC = """في الصباح كانت المدينة هادئة، ولم يكن في الشارع أحد سوى بائع الخبز. فتح الرجل باب الدكان ونظر إلى السماء وقال إن المطر لن
ينزل اليوم. جلس على الكرسي وشرب الشاي ببطء، ثم بدأ يقرأ الجريدة كما يفعل كل يوم. بعد ساعة جاءت جارته وسألته عن ابنه الذي يدرس
في الخارج، فأخبرها أنه سيعود في الصيف وأن العمل هناك صعب ولكنه سعيد."""

HINDI = """सुबह गाँव में बहुत शांति थी और नदी के उस पार कोई लकड़ी काट रहा था। बूढ़ा आदमी बाहर आया, उसने आसमान की ओर देखा और सोचा कि आज बारिश
नहीं होगी। उसने चाय बनाई और अपने पुराने मित्र का इंतज़ार करने लगा। थोड़ी देर बाद पड़ोसी दूध लेकर आई और उसने बताया कि बाज़ार में
ताज़ी रोटी मिल रही है। दोनों ने बच्चों के बारे में और पुराने दिनों के बारे में बात की।"""

GREEK = """Το πρωί το χωριό ήταν ήσυχο και μόνο από την άλλη πλευρά του ποταμού ακουγόταν κάποιος που έκοβε ξύλα. Ο γέρος βγήκε στην
αυλή, κοίταξε τον ουρανό και αποφάσισε ότι σήμερα δεν θα βρέξει. Έφτιαξε καφέ, βρήκε τη ζάχαρη στο ντουλάπι και περίμενε τη
γειτόνισσα, που κάθε μέρα του έφερνε γάλα και του έλεγε τα νέα της αγοράς."""

HEBREW = """בבוקר הכפר היה שקט ורק מעבר לנהר מישהו חטב עצים. הזקן יצא אל המרפסת, הסתכל על השמים והחליט שהיום לא ירד גשם. הוא הכין
תה, מצא את הסוכר בארון וחיכה לשכנה, שבכל יום הביאה לו חלב וסיפרה לו מה חדש בשוק. אחר כך הם דיברו על הילדים, על המחירים ועל
הימים שבהם הכול היה אחרת."""

THAI = """ตอนเช้าหมู่บ้านเงียบมาก มีเพียงเสียงคนตัดไม้ที่อีกฝั่งของแม่น้ำ ชายชราเดินออกมาที่ระเบียง มองท้องฟ้าแล้วคิดว่าวันนี้ฝนคงไม่ตก
เขาชงชา หาน้ำตาลในตู้ และรอเพื่อนบ้านที่นำนมมาให้ทุกวัน พวกเขาคุยกันเรื่องลูกหลาน เรื่องราคาสินค้า และเรื่องสมัยก่อนที่ทุกอย่างไม่เหมือนตอนนี้"""

CHINESE = """早上村子里很安静,只有河对岸有人在砍柴。老人走到门口,看了看天空,觉得今天不会下雨。他烧了一壶水,在柜子里找到了糖,然后等着邻居来。
邻居每天都会送来牛奶,并且告诉他市场上的新闻。他们谈起孩子,谈起物价,也谈起从前那些完全不同的日子。后来他拿着鱼竿去了河边,虽然他知道那里已经没有什么鱼了。"""

JAPANESE = """朝の村はとても静かで、川の向こう側で誰かが薪を割る音だけが聞こえていました。老人は縁側に出て空を見上げ、今日は雨が降らないだろうと
思いました。お茶をいれ、棚から砂糖を取り出して、毎日牛乳を届けてくれる隣の人を待ちました。二人は子どものことや値段のこと、そして昔のことを話しました。"""

KOREAN = """아침에 마을은 아주 조용했고 강 건너편에서 누군가 나무를 베는 소리만 들렸다. 노인은 마루에 나와 하늘을 바라보며 오늘은 비가 오지 않을
것이라고 생각했다. 그는 차를 끓이고 찬장에서 설탕을 찾은 다음 매일 우유를 가져다주는 이웃을 기다렸다. 두 사람은 아이들과 물가, 그리고 모든 것이 달랐던
옛날에 대해 이야기했다."""

EMOJI = "👩🏽‍💻🧑🏻‍🚀👨🏿‍🌾❤️‍🔥👍🏼👋🏾🤦🏻‍♀️🙋🏽‍♂️✌🏿☝🏻🏳️‍🌈👩‍❤️‍👨🧑🏾‍🎨💪🏽👏🏻🕵🏼‍♀️🏃🏿‍♂️🧘🏽‍♀️🫶🏾🤝🏼" * 4


def noise(size: int) -> bytes:
    """Bytes that look like random ones, the same on every machine."""
    state, out = 1, bytearray()
    while len(out) < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    return bytes(out)


BASE64 = base64.b64encode(noise(4500)).decode()
DIGITS = "".join(str(byte % 10) for byte in noise(1200))
