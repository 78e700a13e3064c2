"""Tests announcements, and similar sentences that are answers, in all languages."""

# ruff: noqa: RUF001 - marks of many scripts look alike

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.guardrails.announcements.cues import load_languages
from proxy.guardrails.announcements.recognition import (
    announces,
    asks_user,
    find_last_sentences,
    instructs_user,
    is_question,
    matchers_for,
    normalize,
    prepare,
    shows_last,
    shows_next,
)
from tests.corpus.quotations import BEFORE, BEHIND
from tests.fakes.arrivals import is_linear

NEVER_AN_ANNOUNCEMENT = {
    "nothing": "",
    "blanks": " \n\t ",
    "a question": "Shall I?",
    "a block of code that is open": "Here:\n```python\nrun()",
    "a block of code at the end": "Here:\n```python\nrun()\n```",
    "a quotation": "He wrote:\n> I'll check.",
    "a table": "| a | b |",
    "a heading": "## Checking the logs",
    "an item": "I'll:\n- check the logs",
    "a numbered item": "Plan:\n1. check the logs",
    "indented code": "Run\n    make",
    "a draft with a subject": "Subject: Tomorrow\n\nI'll check.",
    "a draft with a salutation": "Dear Ms. Weber,\n\nI'll check.",
    "pictures": "👍 🎉",
}


@pytest.mark.parametrize("text", NEVER_AN_ANNOUNCEMENT.values(), ids=NEVER_AN_ANNOUNCEMENT)
def test_find_last_sentences_returns_nothing_for_texts_that_cannot_be_announcements(
    text: str,
) -> None:
    assert find_last_sentences(text) == ()


def test_at_most_the_last_three_sentences_are_returned() -> None:
    assert find_last_sentences("One. Two. Three! Four.") == ("Two.", "Three!", "Four.")
    assert find_last_sentences("One.\n\nTwo:\n\nThree.") == ("Two:", "Three.")


def test_sentences_in_scripts_without_spaces_are_split() -> None:
    assert find_last_sentences("好的。我来查。") == ("好的。", "我来查。")
    assert find_last_sentences("ठीक है। देखता हूँ।") == ("ठीक है।", "देखता हूँ।")


@pytest.mark.parametrize("text", ["Mr. Weber is in.", "See foo.py or 3.5 of it.", "E. T. is here."])
def test_a_full_stop_within_a_sentence_does_not_end_it(text: str) -> None:
    assert find_last_sentences(text) == (text,)


def test_text_before_the_end_of_the_last_code_block_is_dropped() -> None:
    assert find_last_sentences("I'll check.\n```\nx\n```\nDone.") == ("Done.",)


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("**Now** see _this_ [page](https://a.b/c)", "Now see this page"),
        ("Use `run_tests` now", "Use ` now"),
        ('"I\'ll check", he said', '", he said'),
        ("'I'll check', he said", '", he said'),
        ("« Je regarde », dit-elle", '", dit-elle'),
        ("„Ich prüfe das“, sagt er", '", sagt er'),
        ("「見てくる」と言った", '"と言った'),
    ],
)
def test_markup_is_removed_and_quotations_and_code_are_replaced_by_a_backtick(
    marked: str, plain: str
) -> None:
    assert find_last_sentences(marked) == (plain,)


@pytest.mark.parametrize("mark", ["?", "？", "؟", "?!", "?)", '?"', "? 😊", "?**", "\u037e"])
def test_a_text_is_a_question_if_no_word_follows_the_question_mark(mark: str) -> None:
    assert is_question(f"Shall I{mark}")


@pytest.mark.parametrize("text", ["", "No.", "Why? Because."])
def test_a_text_without_a_final_question_mark_is_not_a_question(text: str) -> None:
    assert not is_question(text)


@pytest.mark.parametrize(
    ("sentence", "ready"),
    [
        ("Sure, I’ll CHECK.", " sure , i'll check "),
        ("Now – at 14:15 – the logs:", " now , at 14:15 , the logs : "),
        ("好的，我来查：", " 好的 , 我来查 : "),
        ("J'ouvre l'onglet…", " j' ouvre l' onglet … "),
        ("Checking (again)...", " checking , again … "),
    ],
)
def test_words_and_punctuation_are_separated_by_spaces(sentence: str, ready: str) -> None:
    normalized = normalize(sentence)

    assert normalized.text == ready
    assert normalized.words == frozenset(ready.split())


LANGUAGES = load_languages()

TOOLS = ("read_file", "webSearch", "HassTurnOn", "grep")

ENGLISH_ANNOUNCEMENTS = [
    "I'll have a look at the config and see what's wrong.",
    "I’ll check that for you!",
    "Okay, let me open the file first.",
    "Let me look at the file:",
    "I'm going to search for that now.",
    "I am now updating the ticket.",
    "Checking the logs…",
    "Great, now running the migration.",
    "The server is up again, pushing the branch now.",
    "That's odd. I'd better check the logs.",
    "That file doesn't exist, so I'll list the folder to find the right name.",
    "Let me check if the file exists.",
    "Setting a timer for 10 minutes ⏲️",
    "On it!",
    "One moment, please.",
    "Please wait while I look up your order.",
    "To be sure I need to call `read_file`.",
    'Trying another term: "opening hours".',
    "## Findings\n\n- `parse()` drops a token\n- `lex()` is fine\n\nNow let me write the fix.",
    "I should look first.\n</think>\n\nI'll open the schema.",
    "It needs one change:\n\n```python\nx = 1\n```\n\nI'll apply it now.",
    "**Let me search the web.**",
    "I'll fetch the page. This may take a moment.",
    "I'll read the log. Then I'll let you know what happened.",
    "I'll frobnicate the widget now.",
]
ENGLISH_ANSWERS = [
    "The capital of Portugal is Lisbon.",
    "Let me know how it goes!",
    "Let me be honest: this design won't scale.",
    "Let me explain. A mutex is a lock.",
    "I'll explain it with an example.",
    "I'll begin with the bad part: it's slow.",
    "I'll check it as soon as you confirm the date.",
    "If you send me the log, I'll check it for errors.",
    "Which folder? I'll search it right away.",
    "Please share the link. I'll read the article then.",
    'Say "go" and I\'ll get started.',
    "Shall I run the tests?",
    "Should I delete it (I'll make a copy first)?",
    "I've run the tests and they all pass.",
    "I'll always search the web before I answer.",
    "I'll send you the contract tomorrow.",
    "I won't run that command.",
    "I was going to delete the branch, but left it.",
    "Running the tests takes five minutes.",
    "Checking the box enables two-factor authentication.",
    "Then the server will check the signature.",
    'She whispered: "I\'ll check the cellar."',
    "He wrote:\n> I'll check the cellar.",
    "Put this into the prompt:\n```\nSay: I'll check.",
    "I'll check the weather.\n\nIt is 21 °C and sunny in Porto.",
    "Let me calculate: 17 times 3 is 51.",
    "My plan:\n1. read the config\n2. update the parser",
    "Dear Ms. Weber,\n\nI will send the contract.",
    "I can search the web and read files.",
    "I'm looking forward to it!",
    "I'm checking in to see how you're doing!",
    "I'll call this variable `total`.",
    "I'll keep that in mind.",
    "",
]


@pytest.mark.parametrize("text", ENGLISH_ANNOUNCEMENTS)
def test_an_english_announcement_is_recognized(text: str) -> None:
    assert announces(text, TOOLS)


@pytest.mark.parametrize("text", ENGLISH_ANSWERS)
def test_a_similar_english_answer_is_not_an_announcement(text: str) -> None:
    assert not announces(text, TOOLS)


@pytest.mark.parametrize("name", ["geocode", "geo_code", "geoCode", "GEO-code", "mcp__geo__code"])
def test_a_word_of_an_offered_tools_name_counts_as_a_verb_of_an_announcement(name: str) -> None:
    verb = "geocode" if name == "geocode" else "geo"

    assert not announces(f"Let me {verb} that.")
    assert announces(f"Let me {verb} that.", [name])


def test_a_verb_of_saying_in_a_tool_name_does_not_make_an_announcement() -> None:
    assert not announces("Let me explain.", ["explain_code"])


def test_a_sentence_barred_by_the_cues_of_any_language_is_not_an_announcement() -> None:
    assert announces("Verifico el archivo.")
    assert not announces("Verifico el archivo cuando me confirmes.")  # only Spanish has "cuando"


def test_only_the_end_of_a_long_answer_is_searched_for_an_announcement() -> None:
    assert announces(
        "The cause is a stale cache. " * 500 + "I'll clear it now.".replace("clear", "fix")
    )
    assert not announces("I'll fix it now. " + "The cause is a stale cache. " * 500)


ENDINGS = st.sampled_from([*ENGLISH_ANNOUNCEMENTS, *ENGLISH_ANSWERS])


@given(st.text(), st.lists(st.text(), max_size=3))
@example("'" * 700, ["x"])
@example("\ud800 I'll check", ["\ud800"])
def test_any_text_is_classified_without_an_error(text: str, tools: list[str]) -> None:
    assert announces(text, tools) in (True, False)


@given(
    ENDINGS, st.sampled_from("?？؟\u037e"), st.sampled_from(["", ")", '"', " 😊", "!", "**", "\n"])
)
def test_a_text_with_a_final_question_mark_is_not_an_announcement(
    text: str, mark: str, following: str
) -> None:
    assert not announces(text + mark + following, TOOLS)


@given(ENDINGS, st.text(alphabet="ab .\n", max_size=40))
def test_earlier_paragraphs_do_not_change_whether_a_text_is_an_announcement(
    text: str, before: str
) -> None:
    filler = f"{before}\n\nIt is so.\n\nIt is.\n\n"

    assert announces(filler + text, TOOLS) == announces(f"It is so.\n\nIt is.\n\n{text}", TOOLS)


@pytest.mark.parametrize(
    "unit", ["I'll check. ", "now ", "a", "'", "`", "```", " ", "?", "我来", "\n"]
)
def test_the_search_for_an_announcement_is_linear_in_the_length_of_the_text(unit: str) -> None:
    assert is_linear(announces, lambda size: unit * (size // len(unit)), 1_000_000)


def test_the_search_for_an_announcement_is_linear_in_the_length_of_a_sentence() -> None:
    assert is_linear(announces, lambda size: "now just " * (size // 9), 600)


ANNOUNCEMENTS = {
    "de": [
        "Ich schaue mir kurz die Konfiguration an.",
        "Das Verzeichnis fehlt noch. Ich lege es jetzt an:",
        "Alles klar, ich werde jetzt die Tests ausführen.",
        "Gute Idee! Ich kümmere mich darum.",
        "Die Suche ergab nichts. Neuer Versuch mit anderen Begriffen:",
        "Zuerst einmal muss ich wissen, was in der Tabelle steht. Ich frage sie ab.",
    ],
    "nl": [
        "Ik ga even in de logbestanden kijken.",
        "Momentje, ik zoek het voor je op.",
        "Ik start nu de tests.",
        "Oké, ik doe de lampen in de keuken uit.",
        "Ik ga dat meteen voor je uitzoeken.",
        "Eerst maar eens kijken wat er in die map staat.",
    ],
    "fr": [
        "Je regarde la météo à Lyon tout de suite.",
        "Laissez-moi vérifier votre commande.",
        "Pas de souci, j'ajoute ça à votre liste.",
        "Le premier lien est mort. J'essaie avec le deuxième.",
        "Ok, je jette un œil aux logs.",
        "Allez, je lance la compilation et on voit ce que ça donne.",
    ],
    "es": [
        "Déjame revisar el archivo de configuración.",
        "Un momento, estoy consultando tu pedido.",
        "Vale, apago las luces del salón.",
        "Perfecto, lo añado a tu lista de tareas.",
        "Dame un segundo que lo miro.",
        "Primero necesito leer el archivo de configuración.",
    ],
    "pt": [
        "Agora testo a função corrigida.",
        "Deixa eu verificar o log do servidor.",
        "Certo, vou abrir o arquivo primeiro.",
        "Pode deixar, já adiciono na lista.",
        "Deixa comigo, vou checar agora mesmo.",
        "Primeiro, vou ler o arquivo para entender a estrutura.",
        "Vamos ver o que tem nessa pasta:",
    ],
    "it": [
        "Controllo subito lo stato dell'ordine.",
        "Un attimo, sto cercando le informazioni.",
        "Adesso eseguo i test e vediamo:",
        "Ok, accendo le luci in cucina.",
        "Vediamo un po' cosa c'è in quella cartella.",
        "Ci penso io, aggiungo l'evento al calendario.",
    ],
    "pl": [
        "Sprawdzę teraz status zamówienia.",
        "Zaraz poszukam tego w sieci.",
        "Uruchamiam testy…",
        "Dobra, gaszę światło w salonie.",
        "Zobaczmy, co jest w tym katalogu.",
        "Nic nie znalazłem. Spróbuję z innym zapytaniem.",
    ],
    "tr": [
        "Hemen siparişinizi kontrol ediyorum.",
        "Şimdi testleri çalıştıracağım.",
        "Bir saniye, hava durumuna bakıyorum…",
        "Tamam, salonun ışıklarını kapatıyorum.",
        "Önce klasörde ne var bir görelim.",
        "Sonuç çıkmadı. Başka bir sorgu deneyeyim.",
    ],
    "vi": [
        "Để tôi kiểm tra tệp cấu hình.",
        "Vâng, tôi sẽ tìm kiếm thông tin ngay bây giờ.",
        "Đang tra cứu đơn hàng của bạn…",
        "Được rồi, tôi tắt đèn phòng khách đây.",
        "Để xem trong thư mục này có gì.",
        "Mình thêm vào danh sách ngay nhé.",
    ],
    "ru": [
        "Сейчас проверю статус вашего заказа.",
        "Запускаю тесты.",
        "Давайте глянем, что в логах.",
        "Сначала прочитаю файл, потом внесу правки.",
        "Начну с проверки конфигурации.",
        "Мне нужно сначала посмотреть на структуру проекта.",
    ],
    "ar": [
        "سأتحقق من حالة الطلب الآن.",
        "دعني أبحث عن ذلك في الإنترنت.",
        "لحظة من فضلك، أقوم بفتح الملف…",
        "حسنًا، سأطفئ أنوار غرفة المعيشة.",
        "لنرَ ما يوجد في هذا المجلد.",
        "لم أجد شيئًا. سأجرّب كلمات أخرى.",
    ],
    "hi": [
        "मैं अभी आपके ऑर्डर की स्थिति जाँच रहा हूँ।",
        "रुकिए, मैं इंटरनेट पर खोजता हूँ…",
        "अब मैं टेस्ट चलाऊँगा:",
        "ठीक है, मैं लाइट बंद कर देता हूँ।",
        "चलिए देखते हैं कि इस फ़ोल्डर में क्या है।",
        "कुछ नहीं मिला। दूसरे शब्दों से खोजकर देखता हूँ।",
    ],
    "zh": [
        "好的，我先看一下配置文件。",
        "正在为您查询订单状态，请稍候……",
        "接下来我来运行测试：",
        "好嘞，这就把客厅的灯关掉。",
        "先看看这个文件夹里有什么。",
        "没有搜到结果，我换个关键词再试试。",
    ],
    "ja": [
        "設定ファイルを確認します。",
        "少々お待ちください。注文状況をお調べいたします。",
        "では、テストを実行してみますね。",
        "了解です。リビングの照明を消しますね。",
        "まずはフォルダの中身を見てみます。",
        "見つかりませんでした。別のキーワードで検索し直します。",
    ],
    "ko": [
        "지금 주문 상태를 조회하겠습니다.",
        "파일을 먼저 열어 보겠습니다.",
        "네, 검색 중입니다…",
        "네, 거실 불 끌게요.",
        "폴더 안에 뭐가 있는지 먼저 볼게요.",
        "결과가 없네요. 다른 검색어로 다시 찾아볼게요.",
    ],
}
ANSWERS = {
    "de": [
        "Ich prüfe das gern, sobald du mir die Bestellnummer schickst.",
        "Lass mich das an einem Beispiel erklären: Ein Mutex ist wie ein Schlüssel.",
        "Ich prüfe Eingaben grundsätzlich auf Fehler.",
        "Sag einfach Bescheid, dann lösche ich die Einträge.",
        "Lass uns das morgen prüfen.",
        "Ich starte mal mit einer Gegenfrage: Wie viele Nutzer habt ihr?",
        "Ich suche mir gleich etwas anderes, sagte er und legte auf.",
        "Ich hole kurz aus: Das Protokoll stammt aus den Achtzigern.",
        "Der Vermieter wird die Heizung prüfen lassen.",
    ],
    "nl": [
        "Als je wilt, zoek ik het voor je op.",
        "Ik heb het bestand bekeken en alles klopt.",
        "Geef me de stad, dan zoek ik het weer op.",
        "Ik controleer dit soort dingen altijd twee keer.",
        "Ik begin met het goede nieuws: alles werkt.",
        "Voeg nu de bloem toe en roer goed.",
        "De huurder zal het contract controleren.",
        "Ik ga het kort houden: nee.",
        "Ik gebruik hier het woord knoop voor beide.",
    ],
    "fr": [
        "Je vais vous expliquer la différence : une liste est modifiable, un tuple non.",
        "Dès que vous aurez confirmé, je lancerai la migration.",
        "Je peux consulter la météo, envoyer des mails et gérer votre agenda.",
        "Envoyez-moi le numéro de commande et je vérifie.",
        "Je vais être direct : ce code est dangereux.",
        "Je lis beaucoup de romans policiers.",
        "Je vous envoie toute ma sympathie.",
        "Je vais essayer d'être bref : non.",
        "Le locataire va vérifier l'état des lieux avec le propriétaire.",
    ],
    "es": [
        "¿Quieres que lo busque?",
        "Te voy a dar un consejo: no uses variables globales.",
        "Puedo buscar vuelos, reservar hoteles y consultar el tiempo.",
        "Te mando un abrazo.",
        "Yo empezaría por revisar los logs.",
        "Vamos a suponer que la lista está vacía.",
        "Voy a ser breve: no.",
        "Leo entre líneas que no te convence.",
        "Pongo un ejemplo: una lista de tres elementos.",
    ],
    "pt": [
        "Se quiser, posso enviar o e-mail agora.",
        "Já verifiquei o log e não encontrei erros.",
        "Depois abra o terminal e execute:",
        "Vamos supor que a lista esteja vazia.",
        "Abro um parêntese: este formato está obsoleto.",
        "Acrescento que também é mais barato.",
        "Vou direto ao ponto: não.",
        "O inquilino vai verificar o contrato.",
        "Amanhã eu envio o relatório.",
    ],
    "it": [
        "Se vuoi, posso cercare altre opzioni.",
        "Ho controllato il file e va tutto bene.",
        "Poi apri il terminale ed esegui:",
        "Controllo sempre due volte.",
        "Apro una parentesi: questo formato è obsoleto.",
        "Aggiungo che costa anche meno.",
        "Cerco di spiegarmi meglio: il problema è la chiave.",
        "Ora aggiungi la farina e mescola.",
        "Metto le mani avanti: non sono un avvocato.",
    ],
    "pl": [
        "Jeśli chcesz, mogę to sprawdzić.",
        "Pozwól, że wyjaśnię: kompilator pomija tę linię.",
        "Sprawdziłem plik i wszystko działa.",
        "Mogę wyszukać loty i zarezerwować hotel.",
        "Podaj miasto, a sprawdzę pogodę.",
        "Potem otwórz terminal i uruchom:",
        "Zawsze sprawdzam dwa razy.",
        "Zacznę od dobrej wiadomości: wszystko działa.",
        "Czytam między wierszami, że masz wątpliwości.",
    ],
    "tr": [
        "İsterseniz sizin için araştırabilirim.",
        "Şöyle açıklayayım: bu döngü hiç bitmiyor.",
        "Dosyayı kontrol ettim, sorun yok.",
        "Uçuş arayabilir ve otel rezervasyonu yapabilirim.",
        "Şehri söyleyin, hava durumuna bakayım.",
        "Her zaman iki kez kontrol ederim.",
        "Bunu bir örnekle açıklayayım.",
        "İyi haberle başlıyorum: her şey çalışıyor.",
        "Şimdi unu ekleyin ve karıştırın.",
    ],
    "vi": [
        "Nếu bạn muốn, tôi có thể kiểm tra lại.",
        "Bạn muốn tôi mở tệp nào?",
        "Cho tôi biết thành phố, tôi sẽ kiểm tra thời tiết.",
        "Tôi luôn kiểm tra hai lần.",
        "Tôi bắt đầu bằng tin tốt: mọi thứ đều chạy.",
        "Người thuê sẽ kiểm tra hợp đồng.",
        "Tôi tìm việc đã ba tháng rồi, anh ấy viết.",
        "Tôi xin nói thẳng: không.",
        "Tôi gửi lời chúc tốt đẹp!",
    ],
    "ru": [
        "Если хотите, я могу проверить ещё раз.",
        "Я проверил файл, ошибок нет.",
        "Назовите город, и я проверю погоду.",
        "Я всегда проверяю дважды.",
        "Начну с хорошей новости: всё работает.",
        "Добавлю, что он ещё и дешевле.",
        "Ищу работу уже три месяца, написал он.",
        "Открою секрет: это была случайность.",
        "Буду краток: нет.",
    ],
    "ar": [
        "إذا أردت يمكنني البحث عن المزيد.",
        "دعني أشرح لك الفرق: القائمة قابلة للتعديل.",
        "تحققت من الملف ولا توجد أخطاء.",
        "يمكنني البحث عن الرحلات وحجز الفنادق.",
        "أخبرني بالمدينة وسأتحقق من الطقس.",
        "أتحقق دائمًا مرتين.",
        "افتح الطرفية ثم نفّذ الأمر التالي:",
        "سأبدأ بالخبر الجيد: كل شيء يعمل.",
        "الآن أضف الطحين وحرّك.",
    ],
    "hi": [
        "अगर आप चाहें तो मैं दोबारा जाँच सकता हूँ।",
        "मैंने फ़ाइल जाँच ली है, सब ठीक है।",
        "मैं समझाता हूँ: लूप तब रुकता है जब सूची ख़ाली हो।",
        "मैं उड़ानें खोज सकता हूँ और होटल बुक कर सकता हूँ।",
        "शहर बताइए, मैं मौसम देख लेता हूँ।",
        "मैं हमेशा दो बार जाँचता हूँ।",
        "यह कमांड फ़ाइल खोलता है।",
        "मैं अच्छी ख़बर से शुरू करता हूँ: सब चल रहा है।",
        "अब आटा डालें और मिलाएँ।",
    ],
    "zh": [
        "如果需要，我可以再查一下。",
        "让我解释一下：列表是可变的，元组不可变。",
        "告诉我城市，我来查天气。",
        "我一般会先看日志。",
        "我来给你讲个故事吧。",
        "先说好消息：一切正常。",
        "点击按钮后系统开始搜索。",
        "租户会检查合同。",
        "我用“节点”这个词来指代两者。",
    ],
    "ja": [
        "ご希望でしたら、もう一度確認します。",
        "検索してもよろしいでしょうか。",
        "都市名を教えていただければ、天気を調べます。",
        "次に、ターミナルを開いて実行します。",
        "良い知らせから始めます。すべて動いています。",
        "このボタンを押すと検索を開始します。",
        "サーバーは毎分データを取得します。",
        "入居者が契約書を確認します。",
        "よろしくお願いします。",
    ],
    "ko": [
        "원하시면 제가 다시 확인해 드릴게요.",
        "어떤 파일을 열까요?",
        "도시를 알려주시면 날씨를 확인할게요.",
        "저는 항상 두 번 확인합니다.",
        "좋은 소식부터 시작할게요. 모두 정상입니다.",
        "세입자가 계약서를 확인합니다.",
        "이 버튼을 누르면 검색을 시작합니다.",
        "결론부터 말씀드리겠습니다.",
        "응원할게요!",
    ],
}


def pairs(sentences: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(language, text) for language, texts in sentences.items() for text in texts]


@pytest.mark.parametrize(("language", "text"), pairs(ANNOUNCEMENTS))
def test_an_announcement_in_any_language_is_recognized(language: str, text: str) -> None:
    assert announces(text), language


@pytest.mark.parametrize(("language", "text"), pairs(ANSWERS))
def test_a_similar_answer_in_any_language_is_not_an_announcement(language: str, text: str) -> None:
    assert not announces(text), language


ONLY_TEXT = """
    This is only text|Das ist nur Text|Dit is alleen tekst|Ce n'est que du texte|Esto es solo texto
    Isto é apenas texto|Questo è solo testo|Ecco il testo|To tylko tekst|Это просто текст
    Bu sadece metin|Đây chỉ là văn bản|这只是文本|これはただのテキストです|이것은 그냥 텍스트입니다
    هذا مجرد نص|यह सिर्फ़ पाठ है|El marco|El inicio|Il comando|O texto
"""


@pytest.mark.parametrize("mark", [":", "."])
def test_the_phrase_this_is_only_text_is_not_an_announcement_in_any_language(mark: str) -> None:
    texts = [line.strip() for line in ONLY_TEXT.replace("\n", "|").split("|") if line.strip()]
    assert [text for text in texts if announces(f"{text}{mark}", ["get_weather"])] == []


def test_every_language_has_test_sentences_with_announcements_and_answers() -> None:
    named = {language.language for language in LANGUAGES} - {"en"}
    assert named == set(ANNOUNCEMENTS) == set(ANSWERS)
    assert len({language.language for language in LANGUAGES}) == len(LANGUAGES)


def languages_of(text: str) -> set[str]:
    return {matcher.language for matcher in matchers_for(text)}


def test_a_word_is_matched_only_against_languages_written_in_its_script() -> None:
    latin = {language.language for language in LANGUAGES if language.script == "latin"}
    assert languages_of("check") == languages_of("prüfe") == latin
    assert languages_of("проверю") == {"ru"}
    assert languages_of("查") == {"zh"}
    assert languages_of("…–") == set()


def test_a_text_with_kana_and_chinese_characters_is_matched_only_as_japanese() -> None:
    assert languages_of("確認します") == {"ja"}


def test_a_sentence_in_two_scripts_is_matched_against_the_languages_of_both() -> None:
    assert {"ru", "en"} < languages_of("проверю tests")


def test_no_more_patterns_are_compiled_after_prepare_was_called() -> None:
    prepare()
    matchers = [*matchers_for("check"), *matchers_for("проверю"), *matchers_for("確認します")]
    before = [dict(vars(matcher)) for matcher in matchers]
    for texts in (*ANNOUNCEMENTS.values(), *ANSWERS.values()):
        for text in texts:
            announces(text)
    assert [vars(matcher) for matcher in matchers] == before


# Sentences before or after a call that present it as an example, in all languages.


@pytest.mark.parametrize("words", BEFORE)
def test_words_before_a_call_introduce_it_as_an_example(words: str) -> None:
    assert shows_next(f"{words}\n")


@pytest.mark.parametrize("words", BEHIND)
def test_words_after_a_call_present_it_as_an_example(words: str) -> None:
    assert shows_last(words)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "...",
        "Sure!\n",
        "The answer is:\n",
        "Let me look at the example file:\n",
        "I'll check: ",
    ],
)
def test_other_words_before_a_call_do_not_introduce_an_example(words: str) -> None:
    assert not shows_next(words)


@pytest.mark.parametrize("words", ["", "Done.", "I will tell you as soon as I know.", "Thank you!"])
def test_other_words_after_a_call_do_not_present_an_example(words: str) -> None:
    assert not shows_last(words)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        # requests to the user
        ("Would you like to add it?", True),
        ("I found it. Would you like to add it? If so, please specify how many.", True),
        ("Please provide the colour.\n\nOnce you have, I can mix it.", True),
        ("Bitte geben Sie mir die Stadt an.", True),
        ("请提供城市名称。", True),
        # other sentences
        ("", False),
        ("It is warm in Paris.", False),
        ("What is in that file?", False),
        ("Would you like to add it? " + "It is a book. " * 3, False),
        ("Can you see it? Let me check the file.", False),
    ],
)
def test_only_a_request_to_the_user_counts_as_asking_the_user(text: str, *, asks: bool) -> None:
    assert asks_user(text) is asks


ORDER_TOOLS = ("find_hotel", "place_order")


@pytest.mark.parametrize(
    ("text", "request_text", "is_instruction"),
    [
        ("To order it, you need to first check the stock to get the SKU.", "Order it.", True),
        ("To book it, you can use the `find_hotel` function first.", "Book it.", True),
        ("You should call place_order next.", "Order it.", True),
        ("To book it, you can use the `find_hotel` function first.", "How do I book it?", False),
        ("To run it, you can use `make`.", "Tell me how to run it.", False),
        ("To complete the booking, you need to provide your number.", "Book it.", False),
        ("You can pay on arrival.", "Book it.", False),
        ("It is booked. To pay, you need to use cash.", "Book it.", False),
    ],
)
def test_only_instructions_to_the_user_count_as_instructing_the_user(
    text: str, request_text: str, is_instruction: bool
) -> None:
    assert instructs_user(text, request_text, ORDER_TOOLS) is is_instruction
