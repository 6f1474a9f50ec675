"""The reader of data.mtdata: corpora of mtdata's index, and after them those that data.train names."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from transformer_cli.addons.named_corpora.index import NamedCorpus, named_corpora
from transformer_cli.config.tasks import Task
from transformer_cli.data.formats.sides import SOURCE, TARGET, Sides
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers.base import Corpus, Pair, Reader, Split
from transformer_cli.data.readers.files import Files
from transformer_cli.errors import ConfigError


class Mtdata(Reader):
    """Each id is a corpus, read in the direction of the corpus whichever language its id names first."""

    def suits(self, task: Task) -> bool:
        return task.translates

    def check(self) -> None:
        Files(self.config).check()

    def corpora(self, split: Split) -> list[Corpus] | None:
        of_files = Files(self.config).corpora(split)
        if split != "train":
            return of_files
        return [*map(self._corpus, named_corpora(self.config)), *(of_files or [])]

    def _corpus(self, named: NamedCorpus) -> Corpus:
        names = named.names
        columns: list[int | str] = [*(named.columns or ([0, 1] if "tsv" in named.form else []))]
        is_pair_of_texts = any(form in named.form for form in ("txt", "raw", "sgm")) and "tsv" not in named.form
        if self._is_exchanged(named):
            names = names[::-1] if is_pair_of_texts else names
            columns = columns[::-1]
        config = replace(
            self.config, languages=[], columns=columns, quoted=None, header=None, root=None, downloads=[], mtdata=[]
        )
        tables = [names] if is_pair_of_texts else [[name] for name in names]
        found = [corpus for one in tables for corpus in Files(config).group(one, key="data.mtdata")]
        return replace(_joined(found), name=named.id, facts=named.facts())

    def _is_exchanged(self, named: NamedCorpus) -> bool:
        """Raises ConfigError for a corpus of other languages."""
        key = f"data.mtdata: {named.id}"
        sides = Sides(self.config, key)
        found = [sides[language][0] for language in named.languages]
        if sorted(found) != [SOURCE, TARGET]:
            raise ConfigError(
                f"{key}: is of {' and '.join(named.languages)}, not of data.source_lang={self.config.source_lang} and"
                f" data.target_lang={self.config.target_lang}. Choose another, or correct these keys"
            )
        return found == [TARGET, SOURCE]


def _joined(corpora: Sequence[Corpus]) -> Corpus:
    """The pairs of several corpora, one after another, as one corpus."""
    if len(corpora) == 1:
        return corpora[0]

    def pairs(files: Sequence[Lines]) -> Iterator[Pair]:
        rest = iter(files)
        for corpus in corpora:
            yield from corpus.pairs([next(rest) for _ in corpus.files])

    return Corpus(tuple(file for corpus in corpora for file in corpus.files), pairs)
