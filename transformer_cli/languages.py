"""Languages: their codes and English names, and codes as people and programs write them, as zh-Hans, pt_BR or deu_Latn.

Whatever needs the code or the name of a language takes it from here.
"""

import re
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass

# The code of ISO 639-1, those of ISO 639-2 and others that people use for the same language, and its English name.
_TABLE = """
af afr: Afrikaans
am amh: Amharic
ar ara arb: Arabic
az aze azj: Azerbaijani
be bel: Belarusian
bg bul: Bulgarian
bn ben: Bengali
bo bod tib: Tibetan
br bre: Breton
bs bos: Bosnian
ca cat: Catalan
cs ces cze: Czech
cy cym wel: Welsh
da dan: Danish
de deu ger: German
dz dzo: Dzongkha
el ell gre: Greek
en eng: English
eo epo: Esperanto
es spa: Spanish
et est: Estonian
eu eus baq: Basque
fa fas per pes: Persian
fi fin: Finnish
fo fao: Faroese
fr fra fre: French
ga gle: Irish
gd gla: Scottish Gaelic
gl glg: Galician
gu guj: Gujarati
ha hau: Hausa
he heb iw: Hebrew
hi hin: Hindi
hr hrv: Croatian
hu hun: Hungarian
hy hye arm: Armenian
id ind in: Indonesian
ig ibo: Igbo
is isl ice: Icelandic
it ita: Italian
ja jpn jp: Japanese
jv jav jw: Javanese
ka kat geo: Georgian
kk kaz: Kazakh
km khm: Khmer
kn kan: Kannada
ko kor kr: Korean
ku kur kmr: Kurdish
ky kir: Kyrgyz
la lat: Latin
lb ltz: Luxembourgish
lo lao: Lao
lt lit: Lithuanian
lv lav lvs: Latvian
mg mlg plt: Malagasy
mi mri mao: Maori
mk mkd mac: Macedonian
ml mal: Malayalam
mn mon khk: Mongolian
mr mar: Marathi
ms msa may zsm: Malay
mt mlt: Maltese
my mya bur: Burmese
nb nob: Norwegian Bokmål
ne nep npi: Nepali
nl nld dut: Dutch
nn nno: Norwegian Nynorsk
no nor: Norwegian
oc oci: Occitan
pa pan: Punjabi
pl pol: Polish
ps pus pbt: Pashto
pt por: Portuguese
ro ron rum: Romanian
ru rus: Russian
sa san: Sanskrit
sd snd: Sindhi
se sme: Northern Sami
si sin: Sinhala
sk slk slo: Slovak
sl slv: Slovenian
so som: Somali
sq sqi alb als: Albanian
sr srp: Serbian
sv swe: Swedish
sw swa swh: Swahili
ta tam: Tamil
te tel: Telugu
tg tgk: Tajik
th tha: Thai
ti tir: Tigrinya
tk tuk: Turkmen
tl tgl fil: Tagalog
tr tur: Turkish
tt tat: Tatar
ug uig: Uyghur
uk ukr: Ukrainian
ur urd: Urdu
uz uzb uzn: Uzbek
vi vie: Vietnamese
xh xho: Xhosa
yi yid ji ydd: Yiddish
yo yor: Yoruba
zh zho chi cmn cn: Chinese
zu zul: Zulu
"""
# Others that models translate. They are apart, as their codes do not make a file's ending one of a language: .run, .ts.
_MORE = """
ace: Acehnese
acm: Mesopotamian Arabic
acq: Ta'izzi-Adeni Arabic
aeb: Tunisian Arabic
ajp: South Levantine Arabic
ak aka: Akan
apc: North Levantine Arabic
ars: Najdi Arabic
ary: Moroccan Arabic
arz: Egyptian Arabic
as asm: Assamese
ast: Asturian
awa: Awadhi
ay aym ayr: Aymara
azb: South Azerbaijani
ba bak: Bashkir
ban: Balinese
bem: Bemba
bho: Bhojpuri
bjn: Banjar
bm bam: Bambara
bug: Buginese
ceb: Cebuano
cjk: Chokwe
ckb: Central Kurdish
crh: Crimean Tatar
din dik: Dinka
dyu: Dyula
ee ewe: Ewe
ff ful fuv: Fulah
fj fij: Fijian
fon: Fon
fur: Friulian
fy fry: Western Frisian
gn grn: Guarani
hne: Chhattisgarhi
ht hat: Haitian Creole
ilo: Iloko
kab: Kabyle
kac: Jingpho
kam: Kamba
kbp: Kabiyè
kea: Kabuverdianu
kg kon: Kongo
ki kik: Kikuyu
kmb: Kimbundu
kau knc: Kanuri
ks kas: Kashmiri
lg lug: Ganda
li lim: Limburgish
lij: Ligurian
lmo: Lombard
ln lin: Lingala
ltg: Latgalian
lua: Luba-Lulua
luo: Luo
lus: Mizo
mag: Magahi
mai: Maithili
min: Minangkabau
mni: Manipuri
mos: Mossi
nso ns: Northern Sotho
nus: Nuer
ny nya: Nyanja
om orm gaz: Oromo
or ori ory: Odia
pag: Pangasinan
pap: Papiamento
prs: Dari
qu que quy: Quechua
rn run: Rundi
rw kin: Kinyarwanda
sat: Santali
sc srd: Sardinian
scn: Sicilian
sg sag: Sango
shn: Shan
sm smo: Samoan
sn sna: Shona
ss ssw: Swati
st sot: Southern Sotho
su sun: Sundanese
szl: Silesian
taq: Tamasheq
tn tsn: Tswana
tpi: Tok Pisin
ts tso: Tsonga
tum: Tumbuka
tw twi: Twi
tzm: Central Atlas Tamazight
umb: Umbundu
vec: Venetian
war: Waray
wo wol: Wolof
yue: Cantonese
"""
# Names in the language itself, and in others that spreadsheets are often made in.
_OTHER_NAMES = """
ar: العربية, Arabisch, Arabe, Árabe
bg: Български, Bulgarisch, Bulgare, Búlgaro
ca: Català, Katalanisch, Catalán
cs: Čeština, Česky, Tschechisch, Tchèque, Checo
da: Dansk, Dänisch, Danois, Danés
de: Deutsch, Allemand, Alemán, Alemão, Tedesco, Duits, Niemiecki, Немецкий
el: Ελληνικά, Griechisch, Grec, Griego
en: Englisch, Anglais, Inglés, Inglês, Inglese, Engels, Angielski, Английский, 英語, 英语, İngilizce
es: Español, Castellano, Spanisch, Espagnol, Espanhol, Spagnolo, Spaans, Hiszpański, Испанский
et: Eesti, Estnisch, Estonien
eu: Euskara, Baskisch
fa: فارسی, Persisch, Farsi
fi: Suomi, Finnisch, Finnois, Finlandés
fr: Français, Französisch, Francés, Francês, Francese, Frans, Francuski, Французский
gl: Galego, Gallego
he: עברית, Hebräisch, Hébreu, Hebreo
hi: हिन्दी, हिंदी
hr: Hrvatski, Kroatisch, Croate, Croata
hu: Magyar, Ungarisch, Hongrois, Húngaro
id: Bahasa Indonesia, Indonesisch, Indonésien, Indonesio
is: Íslenska, Isländisch
it: Italiano, Italienisch, Italien, Italiaans, Włoski, Итальянский
ja: 日本語, Japanisch, Japonais, Japonés
ko: 한국어, Koreanisch, Coréen, Coreano
lt: Lietuvių, Litauisch
lv: Latviešu, Lettisch
nl: Nederlands, Niederländisch, Néerlandais, Neerlandés, Olandese
no: Norsk, Norwegisch, Norvégien, Noruego
pl: Polski, Polnisch, Polonais, Polaco
pt: Português, Portugiesisch, Portugais, Portugués, Portoghese
ro: Română, Rumänisch, Roumain, Rumano
ru: Русский, Russisch, Russe, Ruso, Russo
sk: Slovenčina, Slovensky, Slowakisch, Slovaque
sl: Slovenščina, Slowenisch
sr: Српски, Srpski, Serbisch
sv: Svenska, Schwedisch, Suédois, Sueco
th: ไทย
tr: Türkçe, Türkisch, Turc, Turco
uk: Українська, Ukrainisch, Ukrainien
vi: Tiếng Việt, Vietnamesisch
zh: 中文, 汉语, 漢語, Chinesisch, Chinois, Chino
"""


def _rows(table: str) -> list[tuple[list[str], str]]:
    return [(codes.split(), name) for codes, name in (row.split(": ") for row in table.strip().split("\n"))]


NAMES = {codes[0]: name for codes, name in _rows(_TABLE)}
_ALL_NAMES = NAMES | {codes[0]: name for codes, name in _rows(_MORE)}
_ISO_639_1 = {code: codes[0] for codes, _ in [*_rows(_TABLE), *_rows(_MORE)] for code in codes}
_SPELLINGS = {code: {name.casefold()} for code, name in NAMES.items()}
for _code, _names in (row.split(": ") for row in _OTHER_NAMES.strip().split("\n")):
    _SPELLINGS[_code] |= {name.casefold() for name in _names.split(", ")}
_SPELLED = {name: code for code, names in _SPELLINGS.items() for name in names}
# What clients and models mean by codes of programs; `no` and `nb` are used for the same language.
_MEANT = {"nb": "no", "pb": "pt-br", "zt": "zh-hant"}
# The script that a language is usually written in, where that is another than the Latin one.
_SCRIPTS = (
    "arab: ar azb ckb fa prs ps sd ug ur, armn: hy, beng: as bn, cyrl: ba be bg kk ky mk mn ru sr tg tt uk,"
    " deva: hi mr ne sa, ethi: am ti, geor: ka, grek: el, gujr: gu, guru: pa, hans: zh, hebr: he yi, khmr: km,"
    " knda: kn, laoo: lo, mlym: ml, mymr: my shn, orya: or, sinh: si, taml: ta, telu: te, thai: th, tibt: bo dz"
)
_OF_SEVERAL_SCRIPTS = ("ja", "ko")  # and written in any of them by the same code
_USUAL_SCRIPT = {code: "latn" for code in NAMES if code not in _OF_SEVERAL_SCRIPTS}
for _script, _codes in (row.split(": ") for row in _SCRIPTS.split(", ")):
    _USUAL_SCRIPT |= dict.fromkeys(_codes.split(), _script)
_SCRIPT_OF_REGION = {("zh", "tw"): "hant", ("zh", "hk"): "hant", ("zh", "mo"): "hant"}
_SCRIPT_OF_MODIFIER = {"latin": "latn", "cyrillic": "cyrl"}


@dataclass(frozen=True)
class Code:
    """BCP 47's parts, in small letters."""

    language: str
    script: str | None
    region: str | None

    @classmethod
    def of(cls, written: str) -> "Code":
        """Parses pt-BR, pt_BR, PT-br, sr@latin, zh-Hant-TW."""
        code, _, modifier = written.strip().lower().replace("_", "-").partition("@")
        language, *rest = _MEANT.get(code, code).split("-")
        language = _ISO_639_1.get(language, language)
        language, *more = _MEANT.get(language, language).split("-")
        rest = [*more, *rest]
        region = next((part for part in rest if len(part) == 2 or (len(part) == 3 and part.isdecimal())), None)
        script = next((part for part in rest if len(part) == 4 and part.isalpha()), _SCRIPT_OF_MODIFIER.get(modifier))
        script = script or _SCRIPT_OF_REGION.get((language, region or ""))
        return cls(language, script, region)

    @property
    def usual_script(self) -> str | None:
        return self.script or _USUAL_SCRIPT.get(self.language)


def matched(asked: str, known: Iterable[str]) -> str | None:
    """The one of `known` that a client means by `asked`; None where there is none, or more than one.

    A region that only one of the two names does not matter; another region is another language, as is another script
    (zh-Hant is not zh, which is written in simplified characters).
    """
    found = codes_meant(asked, known)
    return found[0] if len(found) == 1 else None


def codes_meant(asked: str, known: Iterable[str]) -> list[str]:
    """The codes of `known` that `asked` may mean: more than one where it leaves the script open, and none is usual."""
    known, wanted = list(known), Code.of(asked)
    for code in known:
        if code.lower() == asked.strip().lower():
            return [code]
    ranked: dict[int, list[str]] = {}
    for code in known:
        rank = _distance(wanted, Code.of(code))
        if rank is not None:
            ranked.setdefault(rank, []).append(code)
    return ranked[min(ranked)] if ranked else []


def near_codes(asked: str, known: Iterable[str]) -> list[str]:
    """The codes of `known` for the language that is meant, in another script or region, or called by its name."""
    language = Code.of(code_of_name(asked.strip().casefold()) or asked).language
    return [code for code in known if Code.of(code).language == language]


def _distance(asked: Code, code: Code) -> int | None:
    """None: another language."""
    regions = {asked.region, code.region} - {None}
    scripts = {asked.usual_script, code.usual_script} - {None}
    if asked.language != code.language or len(regions) > 1 or len(scripts) > 1:
        return None
    return 2 * (asked.region != code.region) + (asked.script != code.script)


def base_code(code: str) -> str:
    """The code without region and script: en of en_US."""
    return re.split("[-_.]", code.lower())[0]


def iso_639_1(code: str) -> str:
    """The code of two letters of a language, by another as deu, deu_Latn or de-AT; one that is not known as it is."""
    code = base_code(code)
    return _ISO_639_1.get(code, code)


def language_name(code: str) -> str | None:
    """The English name of a language; None for a code that is not in the table.

    Regions and scripts, as in en_US, are left out.
    """
    return _ALL_NAMES.get(base_code(code)) or _ALL_NAMES.get(iso_639_1(code))


def spelled_names(code: str) -> Set[str]:
    """The names of a language in English, in itself and in some others, in small letters; none of an unknown code."""
    return _SPELLINGS.get(iso_639_1(code), set())


def code_of_name(name: str) -> str | None:
    """The code of the language with this name, in any of these languages and in small letters."""
    return _SPELLED.get(name)


def bcp47(code: str) -> str:
    """The code as BCP 47 writes it: pt-BR for pt_BR."""
    return code.replace("_", "-")


def names_of(codes: Iterable[str]) -> dict[str, str]:
    """The English names of the languages, with the code where several have the same."""
    names = {code: language_name(code) or code for code in codes}
    counts = Counter(names.values())
    return {code: f"{name} ({bcp47(code)})" if counts[name] > 1 else name for code, name in names.items()}
