"""Reads M2M-100 and NLLB-200 from directories of Hugging Face transformers: one architecture, two tokenizers.

Pre-LN with the sinusoids of tensor2tensor from position 2. The decoder starts with `</s>`, and the first token that it
writes is that of the target language. A source begins with the token of its own, `__en__` of M2M-100 or `eng_Latn` of
NLLB, whose older convention has it at the end, behind `</s>`.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sentencepiece

from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.huggingface_files import (
    TOKENIZER_CONFIG,
    bytes_of,
    json_of,
    refuse_file,
    source_tags,
    text_of_token,
    vocab_pieces,
)
from transformer_cli.addons.interop.huggingface_reader import (
    MARIAN_DEFAULTS,
    Architecture,
    Original,
    TextFiles,
    optional_json,
    reading,
)
from transformer_cli.addons.interop.tokenizer_json import sentencepiece_of
from transformer_cli.config.model import Norm, Positions
from transformer_cli.config.tags import LANGUAGES_JOIN
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.directions import language_among
from transformer_cli.errors import CheckpointError, ConfigError, quoted
from transformer_cli.logs import LOGGER

DEFAULTS = {
    name: value for name, value in MARIAN_DEFAULTS.items() if not name.startswith(("decoder_vocab", "share"))
} | {
    "vocab_size": 128112,
    "activation_function": "relu",
    "attention_dropout": 0.1,
    "decoder_start_token_id": 2,
    "scale_embedding": True,
    "pad_token_id": 1,
    "eos_token_id": 2,
}
# Languages in the order of their ids, which follow those of the pieces; some folders do not hold it.
LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr"
    " ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps"
    " pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
NLLB_LANGUAGES = (
    "ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab arb_Arab ars_Arab"
    " ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl"
    " bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn"
    " cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn"
    " est_Latn eus_Latn ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn"
    " gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn"
    " ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab"
    " kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn"
    " kon_Latn kor_Hang kmr_Latn lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn"
    " lua_Latn lug_Latn luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn"
    " mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn nus_Latn"
    " nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab quy_Latn"
    " ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn"
    " sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn"
    " szl_Latn tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn"
    " tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn"
    " vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans zho_Hant zul_Latn"
)
PIECES, VOCABULARY, TOKENIZER, ADDED = "sentencepiece.bpe.model", "vocab.json", "tokenizer.json", "added_tokens.json"
NLLB_FIRST = ["<s>", "<pad>", "</s>", "<unk>"]  # as in fairseq; the others are one behind SentencePiece's
UNUSED = re.compile(r"<no piece \d+>")
_MASK = "<mask>"
_LANGUAGE = re.compile(r"__([a-z]{2,8}(?:_\w+)?)__|[a-z]{2,3}_[A-Z][a-z]{3}(?:_\w+)?")
_MOST_UNUSED = 256  # rows of the model behind its last piece: they fill up to a round number


@dataclass(frozen=True)
class _Vocabulary:
    """A piece for each row of the model, those of them that name languages, and how a source has its own."""

    model: bytes  # of SentencePiece
    pieces: list[str]
    languages: list[str]
    special: list[str]  # others that no text is cut into, and names for rows that nothing has
    tags: list[str]  # which a line may begin with
    language_last: bool


def _read_text(folder: Path, given: Mapping[str, Any], values: Mapping[str, Any], options: ReadOptions) -> TextFiles:
    settings = optional_json(folder / TOKENIZER_CONFIG)
    read = _m2m_vocabulary if _has_list(folder) else _nllb_vocabulary
    vocabulary = read(folder, settings, values["vocab_size"])
    tokenizer = _tokenizer(folder, vocabulary, values)
    every = list(tokenizer.languages)
    sides = ((options.source_lang, "--source-lang"), (options.target_lang, "--target-lang"))
    try:
        chosen = [code and language_among(code, every, (), flag=flag) for code, flag in sides]
    except ConfigError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    tokenizers = Tokenizers(tokenizer, tokenizer)
    if chosen[0] and chosen[1]:
        tokenizers = tokenizers.in_direction(chosen[0], chosen[1])
    source, target = (code or LANGUAGES_JOIN.join(every) for code in chosen)
    names = (VOCABULARY, PIECES, TOKENIZER_CONFIG, TOKENIZER, ADDED)
    return TextFiles(tokenizers, source, target, [folder / name for name in names if (folder / name).is_file()])


def _has_list(folder: Path) -> bool:
    """Whether a folder is of M2M100Tokenizer, with its pieces in vocab.json; else it is of NllbTokenizer."""
    kind = str(optional_json(folder / TOKENIZER_CONFIG).get("tokenizer_class"))
    return kind.startswith("M2M100") or (not kind.startswith("Nllb") and (folder / VOCABULARY).exists())


def _pieces_file(folder: Path) -> bytes:
    """The SentencePiece model of a folder of NLLB, for which its tokenizer.json can stand."""
    if not (folder / PIECES).exists() and (folder / TOKENIZER).exists():
        return sentencepiece_of(folder / TOKENIZER, NLLB_FIRST, PIECES)
    return bytes_of(folder / PIECES)


def _m2m_vocabulary(folder: Path, settings: Mapping[str, Any], size: int) -> _Vocabulary:
    """The pieces of vocab.json, the tokens of the languages, and names for rows that no text has."""
    kind = settings.get("language_codes", "m2m100")
    if kind not in LANGUAGES:
        refuse_file(
            folder / TOKENIZER_CONFIG, f"language_codes={quoted(str(kind))[1:-1]}: unknown. Choose another model"
        )
    first = len(json_of(folder / VOCABULARY))
    known = vocab_pieces(folder / VOCABULARY, max(first, size))[:first]
    default = [language_token(code) for code in LANGUAGES[kind].split()]
    return _with_added(folder, VOCABULARY, bytes_of(folder / PIECES), known, default, settings, size)


def _nllb_vocabulary(folder: Path, settings: Mapping[str, Any], size: int) -> _Vocabulary:
    """The pieces of SentencePiece with fairseq's four before them, and behind them languages and `<mask>`."""
    content = _pieces_file(folder)
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
        names = [model.id_to_piece(i) for i in range(len(model))]
    except (RuntimeError, OSError, UnicodeDecodeError):
        refuse_file(folder / PIECES, "not a SentencePiece model. Fetch it again")
    if sorted(names[:3]) != sorted({*NLLB_FIRST} - {"<pad>"}):
        refuse_file(folder / PIECES, f"begins with {', '.join(map(quoted, names[:3]))}, not as NLLB's. Fetch it again")
    default = [*NLLB_LANGUAGES.split(), _MASK]
    last = settings.get("legacy_behaviour", False)
    if type(last) is not bool:
        refuse_file(folder / TOKENIZER_CONFIG, f"legacy_behaviour={quoted(str(last))}: neither true nor false")
    found = _with_added(folder, PIECES, content, [*NLLB_FIRST, *names[3:]], default, settings, size)
    return replace(found, language_last=last)


def _with_added(
    folder: Path,
    name: str,
    model: bytes,
    known: list[str],
    default: list[str],
    settings: Mapping[str, Any],
    size: int,
) -> _Vocabulary:
    """The vocabulary of `known` pieces, which the file `name` has, with those that stand behind them."""
    file, n = folder / name, len(known)
    added = _added_tokens(folder, settings)
    _check_tokenizer_json(folder, name, known)
    behind = {number: token for number, token in added.items() if number >= n}
    for number, token in added.items():
        if number < n and known[number] != token:
            refuse_file(
                file,
                f"its piece {number} is {quoted(known[number])}, and {quoted(token)} among the added tokens: of two"
                " revisions. Fetch the folder again",
            )
    if not behind:
        behind = dict(enumerate(default, n))
    if sorted(behind) != list(range(n, n + len(behind))):
        gap = next(number for number in range(n, n + len(behind)) if number not in behind)
        refuse_file(
            file, f"has {n:,} pieces, and no added token has the id {gap:,}: of two revisions. Fetch the folder again"
        )
    if twice := [token for token, count in Counter(behind.values()).items() if count > 1]:
        refuse_file(folder, f"{quoted(twice[0])} is the added token of two ids: of two revisions. Fetch it again")
    total = n + len(behind)
    if not total <= size <= total + _MOST_UNUSED:
        refuse_file(
            file,
            f"{n:,} pieces and {len(behind)} added tokens, but the model has {size:,} rows: of another revision. Fetch"
            " the folder again",
        )
    tokens = [behind[number] for number in range(n, total)]
    languages = [token for token in tokens if _LANGUAGE.fullmatch(token)]
    if not languages:
        refuse_file(folder, "none of its added tokens names a language. Choose another model")
    unused = [f"<no piece {number}>" for number in range(total, size)]
    pieces = [*known, *tokens, *unused]
    tags = [tag for tag in source_tags(folder, settings) if tag in tokens]
    special = [piece for piece in ("<s>", *tokens, *unused) if piece in pieces and piece not in [*languages, *tags]]
    return _Vocabulary(model, pieces, languages, special, tags, language_last=False)


def _added_tokens(folder: Path, settings: Mapping[str, Any]) -> dict[int, str]:
    """The tokens that the files of a folder add to the pieces of SentencePiece, by their ids."""
    entries: list[tuple[Any, Any]] = []
    if (folder / TOKENIZER).is_file():
        found = json_of(folder / TOKENIZER).get("added_tokens")
        for one in found if isinstance(found, list) else []:
            if isinstance(one, dict):
                entries.append((one.get("id"), one.get("content")))
    decoder = settings.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        entries += [(number, text_of_token(token)) for number, token in decoder.items()]
    entries += [(number, token) for token, number in optional_json(folder / ADDED).items()]
    added: dict[int, str] = {}
    for number, token in entries:
        if not re.fullmatch(r"[0-9]{1,9}", str(number)) or not isinstance(token, str):
            refuse_file(
                folder, f"the added token {quoted(str(token))} has the id {quoted(str(number))}. Fetch it again"
            )
        if added.setdefault(int(number), token) != token:
            refuse_file(
                folder,
                f"two files give the id {number} to {quoted(added[int(number)])} and {quoted(token)}: of two revisions."
                " Fetch the folder again",
            )
    return added


def _check_tokenizer_json(folder: Path, name: str, known: Sequence[str]) -> None:
    """Raise CheckpointError if the pieces of tokenizer.json are not `known`, those of the file `name`."""
    if not (folder / TOKENIZER).is_file():
        return
    model = json_of(folder / TOKENIZER).get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # of a unigram model, with scores
        vocabulary = {entry[0]: n for n, entry in enumerate(vocabulary) if isinstance(entry, list) and entry}
    theirs = vocabulary if isinstance(vocabulary, dict) else {}
    if differing := next((piece for n, piece in enumerate(known) if theirs.get(piece) != n), None):
        refuse_file(
            folder / TOKENIZER,
            f"has {len(theirs):,} pieces, and {name} {len(known):,}; {quoted(differing)} has another id in it: of two"
            " revisions. Fetch the folder again",
        )


def language_token(code: str) -> str:
    return f"__{code}__"


def _tokenizer(folder: Path, vocabulary: _Vocabulary, values: Mapping[str, Any]) -> Tokenizer:
    file = folder / (VOCABULARY if _has_list(folder) else PIECES)
    ids = {piece: number for number, piece in enumerate(vocabulary.pieces)}
    for piece, name in (("<pad>", "pad_token_id"), ("</s>", "eos_token_id"), ("<unk>", "")):
        if piece not in ids or (name and ids[piece] != values[name]):
            refuse_file(file, f"has {piece} not where config.json has it. Choose another model")
    try:
        packed = PackedTokenizer(
            Segmenter.sentencepiece,
            vocabulary.pieces,
            pad=ids["<pad>"],
            unk=ids["<unk>"],
            bos=values["decoder_start_token_id"],
            eos=ids["</s>"],
            model=vocabulary.model,
            hidden=vocabulary.special,
            whole=vocabulary.tags,
            languages=vocabulary.languages,
            language_last=vocabulary.language_last,
        )
        return Tokenizer(packed.to_bytes())
    except ValueError as error:
        refuse_file(folder, f"its tokenizer cannot be used ({quoted(str(error))}). Fetch the folder again")
    except CheckpointError as error:
        raise CheckpointError(f"{folder / PIECES}: {error}") from error


class OriginalM2M100(Original):
    """The tokenizer is that of NLLB or of M2M-100, and reads each line as one of the language that its tags name."""

    def open_tokenizer(self, library: Any, place: Mapping[str, Any], text: TextFiles) -> Any:
        tokenizer = self._of_folder(library, place)
        languages, special = language_pieces(self.packed), {*tokenizer.all_special_tokens}
        if not special.issuperset(languages):
            LOGGER.info(
                "%s: does not list its languages as special tokens, so transformers writes them before each text;"
                " compared without them",
                place["pretrained_model_name_or_path"],
            )
            tokenizer.add_special_tokens({"additional_special_tokens": languages})
        return tokenizer

    def _of_folder(self, library: Any, place: Mapping[str, Any]) -> Any:
        folder = Path(place["pretrained_model_name_or_path"])
        if _has_list(folder):
            return library.M2M100Tokenizer.from_pretrained(**place)
        if (folder / TOKENIZER).exists():
            return library.NllbTokenizer.from_pretrained(**place)
        # Without the ids of all tokens, that library gives other ones to languages than their models have.
        with TemporaryDirectory() as copy:
            (Path(copy) / PIECES).symlink_to((folder / PIECES).absolute())
            settings = optional_json(folder / TOKENIZER_CONFIG) | nllb_tokens(self.ours)
            (Path(copy) / TOKENIZER_CONFIG).write_text(json.dumps(settings), encoding="utf-8")
            return library.NllbTokenizer.from_pretrained(**{**place, "pretrained_model_name_or_path": copy})

    @property
    def packed(self) -> PackedTokenizer:
        packed = self.ours.packed
        assert packed is not None
        return packed

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        with reading(self.folder):
            encoded = [ids_there(self.tokenizer, self.ours, line) for line in lines]
        return encoded if self.ours.language_last else [ids[:-1] for ids in encoded]


def ids_there(tokenizer: Any, ours: Tokenizer, line: str) -> list[int]:
    """The ids of a line by a tokenizer of transformers, in which the language of the line is a setting.

    M2M100Tokenizer names languages by their codes, and NllbTokenizer by their pieces.
    """
    packed = ours.packed
    assert packed is not None
    tags, text = split_tags(line, ours.tags)
    code = ours.direction_of(tags)[0]
    piece = next((one for one in packed.languages if one.strip("_") == code), (*packed.prefix, *packed.languages)[0])
    tokenizer.src_lang = piece.strip("_") if hasattr(tokenizer, "get_lang_token") else piece
    ids: list[int] = tokenizer(" ".join([*(tag for tag in tags if tag in packed.whole), text])).input_ids
    return ids


def nllb_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    """Settings of tokenizer_config.json: the ids of the tokens that are not SentencePiece's, and the languages."""
    packed = tokenizer.packed
    assert packed is not None
    languages = language_pieces(packed)
    hidden = [piece for piece in packed.hidden if not UNUSED.fullmatch(piece)]
    own = dict.fromkeys([*NLLB_FIRST, *languages, *hidden, *packed.whole])
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "added_tokens_decoder": {
            str(packed.ids[piece]): {**plain, "content": piece, "lstrip": piece == _MASK}
            for piece in sorted(own, key=packed.ids.__getitem__)
        },
        "additional_special_tokens": languages,
    }


def language_pieces(packed: PackedTokenizer) -> list[str]:
    """The pieces that name languages; of a model of one direction, those that it had."""
    return list(packed.languages) or [piece for piece in packed.hidden if _LANGUAGE.fullmatch(piece)]


M2M100 = Architecture(
    "M2M100ForConditionalGeneration",
    "M2M100Config",
    Norm.pre,
    DEFAULTS,
    text=_read_text,
    original=OriginalM2M100,
    positions=Positions.sinusoidal_tensor2tensor,
    first_position=2,
)
