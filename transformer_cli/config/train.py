"""Keys of a training run: schedule, optimizer, updates, checkpoints; and the commands that take all of them."""

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from transformer_cli.config.checks import AUTO, check_file_name
from transformer_cli.config.comet import CometConfig
from transformer_cli.config.data import DataConfig
from transformer_cli.config.decode import DecodeConfig, LengthNormalization
from transformer_cli.config.fields import DEVICE, PLUGINS, RUNS, SEED, Affects, check_ranges, key
from transformer_cli.config.model import Autoregression, ModelConfig, Positions, Tying
from transformer_cli.config.tasks import ACCURACY, BLEU, NLL, Task, all_tasks
from transformer_cli.errors import ConfigError

# Which key gives the height of each built-in schedule, as it is registered: checked here before torch is imported.
SCHEDULE_HEIGHT = {
    "noam": "factor",
    "inverse_sqrt": "lr",
    "cosine": "lr",
    "linear": "lr",
    "wsd": "lr",
    "constant": "lr",
}


@dataclass
class ScheduleConfig:
    """The learning rate of update n, counted from 1.

    noam takes `factor` (section 5.3: factor · d_model^-0.5 · min(n^-0.5, n · warmup^-1.5)); the others take the
    peak rate `lr`, reached after `warmup_steps` (w). With N the last update that train.max_steps and
    train.max_epochs allow, linear is then lr · (N+1-n) / (N+1-w),
    cosine lr · (1 + cos(π · (n-w) / (N+1-w))) / 2, and wsd lr · (N+1-n) / (d+1) in its last d = decay · N updates:
    zero after the last update, not at it.
    """

    AFFECTS: ClassVar[Affects] = "weights"

    name: str = key("noam", "Entry of the schedule registry: noam, inverse_sqrt, cosine, …, or one of a plugin.")
    factor: float | None = key(None, "Scale of the noam schedule; required there.", low=1e-6, high=100)
    lr: Any = key(
        None,
        "Peak learning rate; required by every other schedule of ours. auto: for fine-tuning, by the width.",
        low=1e-9,
        high=10,
        auto=True,
        chosen_once=True,
    )
    warmup_steps: Any = key(
        4000,
        "Updates of linear warm-up; auto: a tenth of the run, by noam more for a wide model.",
        low=1,
        auto=True,
        chosen_once=True,
    )
    decay: float | None = key(None, "Share of all updates in which the rate falls to zero. wsd only.", low=1e-3, high=1)
    options: dict[str, Any] = key({}, "Settings of a schedule that a plugin registers.", entry="name")

    def __post_init__(self) -> None:
        check_ranges(self, "schedule")
        used = SCHEDULE_HEIGHT.get(self.name)
        if used is None:
            return  # a plugin's schedule, or a name that the registry of schedules refuses
        unused = "lr" if used == "factor" else "factor"
        if getattr(self, used) is None or getattr(self, unused) is not None:
            raise ConfigError(
                f"schedule.{used if getattr(self, used) is None else unused}: schedule.name={self.name} takes"
                f" schedule.{used}, not schedule.{unused}. Set schedule.{used}=VALUE and schedule.{unused}=null"
            )
        if (self.name == "wsd") != (self.decay is not None):
            wanted = (
                "takes a part of all steps. Set schedule.decay=0.1" if self.decay is None else "has none. Leave it out"
            )
            raise ConfigError(f"schedule.decay={self.decay}: schedule.name={self.name} {wanted}")


@dataclass
class OptimizerConfig:
    """Adam's constants (section 5.3)."""

    AFFECTS: ClassVar[Affects] = "weights"

    name: str = key("adam", "Entry of the optimizer registry: adam, adamw, adafactor, muon, or one of a plugin.")
    betas: tuple[float, float] = key(
        (0.9, 0.98), "Decay rates of Adam's first and second moment.", low=0, high=1, below=True
    )
    eps: float = key(1e-9, "Added to the denominator of Adam's update.", low=0, high=1)
    weight_decay: float = key(0.0, "Weight decay of the matrices; biases and norms have none.", low=0, high=1)
    options: dict[str, Any] = key({}, "Settings of an optimizer that a plugin registers.", entry="name")

    def __post_init__(self) -> None:
        if len(self.betas) != 2:
            raise ConfigError(f"optimizer.betas={list(self.betas)}: {len(self.betas)} numbers. Give two, as [0.9,0.98]")
        self.betas = (self.betas[0], self.betas[1])  # YAML has lists only
        check_ranges(self, "optimizer")


TENSORBOARD = "tensorboard"  # of the registry of loggers
TOKEN_CUTOFF = 0.05  # of SimCut's paper


class Precision(Enum):
    auto = "auto"  # bf16 on a GPU that has it, else fp16 there; fp32 on CPU
    fp32 = "fp32"
    tf32 = "tf32"  # fp32 whose matrix products round their factors to 10 bits; GPUs from Ampere on
    bf16 = "bf16"
    fp16 = "fp16"


class FrozenPrecision(Enum):
    fp32 = "fp32"
    bf16 = "bf16"  # half the memory; rounded once, when training begins


class Sharding(Enum):
    none = "none"  # every rank holds the whole model
    full = "full"  # each holds a part of every layer, of its gradient and of the optimizer's state (FSDP)


class Compile(Enum):
    auto = "auto"  # graphs on a GPU, of compiled layers in a long run; none on a CPU; with a message where it fails
    none = "none"
    default = "default"  # layer by layer
    graphs = "graphs"  # the same, and forward and backward passes replayed as CUDA graphs


class OnSpike(Enum):
    warn = "warn"  # a line in the log and an entry in metrics.jsonl
    rollback = "rollback"  # and back to a checkpoint before it; batches of then are skipped
    ignore = "ignore"


class Device(Enum):
    auto = "auto"  # the first GPU when there is one: of CUDA, else of Apple (mps)
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


@dataclass
class TrainSettings:
    """The training loop. Tokens are target tokens, steps are optimizer updates; auto is derived from the corpus."""

    tokens_per_update: Any = key(
        25_000,
        "Target tokens of one update, whatever the hardware (section 5.1); auto: by the corpus.",
        low=1,
        auto=True,
        affects="weights",
        chosen_once=True,
    )
    max_tokens_per_microbatch: Any = key(
        8192,
        "Most tokens of one micro-batch, on either side; lower it to save memory. auto: what fits the memory.",
        low=1,
        auto=True,
        affects="speed",
    )
    max_steps: Any = key(
        100_000,
        "Updates after which training ends; auto: by max_epochs or the corpus.",
        low=1,
        auto=True,
        affects="weights",
        may_change=True,
        chosen_once=True,
    )
    max_epochs: float | None = key(
        None,
        "Passes over the training pairs after which training ends, if max_steps is not first.",
        low=1e-3,
        high=1e6,
        affects="weights",
        may_change=True,
    )
    budget: str | None = key(
        None,
        "Time that the updates may take, as 30m, 2h or 1d: train.max_steps=auto follows from it and from the measured"
        " speed of the device.",
        affects="weights",
    )
    label_smoothing: float = key(
        0.1,
        "Probability mass spread evenly over the vocabulary (section 5.4).",
        low=0,
        high=1,
        below=True,
        affects="weights",
    )
    rdrop: float = key(
        0.0,
        "R-Drop: each batch passes twice, and alpha / 2 times the mean divergence of the two predictions is added to"
        " the loss (5 for translation); 0: off.",
        low=0,
        high=1000,
        affects="weights",
    )
    simcut: float = key(
        0.0,
        "SimCut: each batch also passes with tokens cut from its input, and alpha times the divergence of what is"
        " predicted is added to the loss (3 for translation); 0: off.",
        low=0,
        high=1000,
        affects="weights",
    )
    token_cutoff: float = key(
        TOKEN_CUTOFF,
        "Probability with which simcut sets the embedding of a token to zero.",
        low=0,
        high=1,
        affects="weights",
    )
    guided_alignment: float = key(
        0.0,
        "Guided alignment: weight of a loss that teaches a head of cross-attention the word alignment of the training"
        " pairs (0.1 to 1); 0: off.",
        low=0,
        high=1000,
        affects="weights",
    )
    full_context_alignment: bool = key(
        False,
        "Guided alignment in a second pass of the decoder, where each target token attends to the whole target (Garg"
        " et al. 2019): more exact, for a slower training.",
        affects="weights",
    )
    source_word_dropout: float = key(
        0.0,
        "Probability with which training sets the embedding of a source token to zero.",
        low=0,
        high=1,
        below=True,
        affects="weights",
    )
    target_word_dropout: float = key(
        0.0, "The same of the tokens that the decoder reads.", low=0, high=1, below=True, affects="weights"
    )
    clip_norm: float | None = key(
        None,
        "Largest norm of the gradient; larger ones are scaled down. The paper clips nothing.",
        low=1e-6,
        affects="weights",
    )
    max_nonfinite_steps: int = key(
        10,
        "Consecutive updates with a loss or gradient that is not finite, and is skipped, before training stops.",
        low=1,
        affects="speed",
    )
    on_spike: OnSpike = key(
        OnSpike.warn,
        "What a loss spike does, three updates far above the running mean: a warning (warn), or the run also goes back"
        " to a checkpoint before it and skips the batches of then (rollback).",
        affects="weights",
        may_change=True,
    )
    max_rollbacks: int = key(
        5,
        "Most rollbacks of a run with on_spike=rollback; then spikes are warned of.",
        low=1,
        affects="weights",
        may_change=True,
    )
    rank_timeout: float = key(
        600.0, "Seconds that the processes of one training wait for the slowest.", low=1, high=86_400, affects="speed"
    )
    log_every: Any = key(
        100, "Updates between two lines of the log.", low=1, auto=True, affects="log", chosen_once=True
    )
    log_seconds: float = key(
        30.0, "Seconds without a line in the log after which progress is logged.", low=0.1, affects="log"
    )
    eval_every: Any = key(
        1000, "Updates between two evaluations on the dev set.", low=1, auto=True, affects="export", chosen_once=True
    )
    save_every: Any = key(
        1000, "Updates between two checkpoints.", low=1, auto=True, affects="export", chosen_once=True
    )
    eval_lines: int = key(
        1000, "Dev pairs translated for dev BLEU during training; the first ones.", low=1, affects="scores"
    )
    keep_last: int = key(5, "Newest checkpoints that are kept.", low=1, affects="export")
    keep_best: int = key(1, "Checkpoints with the best dev score that are kept.", low=1, affects="export")
    average_last: int = key(
        5, "Checkpoints averaged at the end; the average is exported only if no worse on dev.", low=1, affects="export"
    )
    ema: float | None = key(
        None,
        "Decay of an exponential moving average of the weights; exported only if no worse on dev.",
        low=0,
        high=1,
        below=True,
        affects="export",
    )
    length_penalties: list[float] = key(
        [],
        "Values of decode.length_penalty with which the exported model translates the dev set at the end, as"
        " [0.6,1.0,1.4]; the lowest that is not significantly worse than the best becomes the model's own. Beam search"
        " only.",
        low=0,
        high=10,
        affects="export",
    )
    metrics: list[str] = key(
        [BLEU],
        "Metrics of dev translations, by the Translator that `tfm translate` uses, as [bleu,chrf,ter]: spbleu, chrf++,"
        " those of a plugin.",
        affects="log",
    )
    best_metric: str = key(
        AUTO,
        "Dev score by which the best checkpoint is chosen: nll, accuracy (of a classifier or tagger), or a metric of"
        " translations as in `metrics`. auto: BLEU or accuracy, and the NLL where BLEU is tiny or differs by noise.",
        affects="export",
        may_change=False,
        chosen_once=True,
    )
    robustness_lines: int = key(
        100,
        "Lines of the test set that are translated perturbed at the end, for robustness.json; 0: none. Translation"
        " only.",
        low=0,
        affects="log",
    )
    patience: int | None = key(
        None,
        "Evaluations without a new best score before training stops; with best_metric=auto also without a lower NLL.",
        low=1,
        affects="export",
    )
    floor: dict[str, float] = key(
        {},
        "Dev sets, by their names in the log (old: that of the model in init.from), and what each score may lose, as"
        " {old: -1.0}: a checkpoint that loses more is never the best.",
        affects="export",
        may_change=False,
    )
    loggers: list[str] = key(
        [TENSORBOARD],
        "Where figures are shown beside metrics.jsonl, as [tensorboard,wandb]: mlflow, trackio, one of a plugin.",
        affects="log",
    )
    samples: int = key(3, "Dev translations shown in the log and by the loggers.", low=0, high=100, affects="log")
    precision: Precision = key(
        Precision.auto,
        "Number format of matrix products; auto: bf16 or fp16 on a GPU, fp32 on a CPU.",
        affects="rounding",
    )
    frozen_precision: FrozenPrecision = key(
        FrozenPrecision.fp32,
        "Number format in memory of the matrices that are not trained, by init.freeze or lora.rank; bf16 halves it, and"
        " rounds them once, at the start.",
        affects="weights",
    )
    profile: bool = key(False, "Trace a few updates and log where their time goes.", affects="log")
    sharding: Sharding = key(
        Sharding.none,
        "Divide weights, gradients and optimizer state among the ranks (full), or keep all on each (none).",
        affects="speed",
    )
    activation_checkpointing: bool = key(
        False, "Recompute activations in the backward pass: less memory, about a third more time.", affects="speed"
    )
    compile: Compile = key(
        Compile.auto,
        "torch.compile by layer (default), replayed as CUDA graphs as well (graphs); auto: on a GPU what pays.",
        affects="speed",
    )

    def __post_init__(self) -> None:
        check_ranges(self, "train")
        if self.rdrop and self.simcut:
            raise ConfigError(
                f"train.rdrop={self.rdrop:g} train.simcut={self.simcut:g}: are two ways to the same end. Set one"
                " of them to 0"
            )
        if self.token_cutoff != TOKEN_CUTOFF and not self.simcut:
            raise ConfigError(
                f"train.token_cutoff={self.token_cutoff:g}: has no effect without train.simcut. Set train.simcut=3, or"
                " leave it out"
            )
        for name, floor in self.floor.items():
            if not floor <= 0:  # nan, too
                raise ConfigError(
                    f"train.floor={{{name}: {floor:g}}}: what a score may lose is at most 0. Write {name}: -1.0"
                )
        if self.budget is not None:
            seconds_of(self.budget)
        if len(set(self.length_penalties)) < len(self.length_penalties):
            raise ConfigError(f"train.length_penalties={self.length_penalties}: has a value twice. Remove one")
        if self.average_last > self.keep_last:
            raise ConfigError(
                f"train.average_last={self.average_last}: more than train.keep_last={self.keep_last}."
                f" Raise train.keep_last to {self.average_last}"
            )


def seconds_of(budget: str) -> float:
    """The seconds of train.budget. Raises ConfigError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", budget)
    if found is None or float(found[1]) == 0:
        raise ConfigError(f"train.budget={budget}: no time. Write a number and its unit, as 30m, 2h or 1d")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]]


def ranking_metric(settings: TrainSettings, task: Task) -> str:
    """The dev score that decides on the best checkpoint, by `train.best_metric` or, with auto, by the task."""
    if settings.best_metric != AUTO:
        return settings.best_metric
    return task.metric


@dataclass
class InitConfig:
    """The model that training begins with (fine-tuning), in place of drawn weights."""

    AFFECTS: ClassVar[Affects] = "weights"

    from_: str | None = key(
        None,
        "Model that training begins with: its tokenizers, sizes and weights (of a translator, a classifier or tagger"
        " takes the encoder). Model file, checkpoint or run directory.",
        path=True,
    )
    freeze: list[str] = key(
        [],
        "Parts that are not trained, by name: encoder, embeddings, decoder.layers.0, *.norm; `tfm train` lists what is"
        " frozen.",
    )
    extend_vocab: int = key(
        0, "New pieces, trained on the training text, that each vocabulary gets at its end.", low=0, high=1_000_000
    )
    extend_languages: list[str] = key(
        [], "Languages that a model with a token for each (NLLB, M2M-100) gets tokens for, as tyv_Cyrl."
    )
    like: str | None = key(
        None,
        "Language of the model as whose tokens and tags those of new languages begin; unset: as the mean of all tokens,"
        " or of the pieces of the tag.",
    )
    keep_languages: list[str] = key(
        [],
        "Leave out the tokens of all other languages, and the pieces that the text does not use: a model of a fraction"
        " of the size, which cuts this text as before.",
    )
    encoder_layers: int | None = key(
        None, "Layers of the encoder, copied from those of the model; unset: as many.", low=1, high=512
    )
    decoder_layers: int | None = key(
        None, "Layers of the decoder, copied from those of the model; unset: as many.", low=1, high=512
    )

    def __post_init__(self) -> None:
        check_ranges(self, "init")


@dataclass
class LoraConfig:
    """Low-rank adaptation (Hu et al. 2021): W + alpha/rank · B A, of which A and B alone are trained."""

    AFFECTS: ClassVar[Affects] = "weights"

    rank: int = key(
        0, "Rank of what is added to each projection of attention and feed-forward layers; 0: off.", low=0, high=4096
    )
    alpha: float | None = key(None, "What is added is scaled by alpha / rank; unset: 2 · rank.", low=1e-6, high=1e6)
    dropout: float = key(0.0, "Dropout on the input of what is added.", low=0, high=1, below=True)
    also: list[str] = key([], "Parts that are trained too, by name, as in init.freeze: embeddings, *.norm.")

    def __post_init__(self) -> None:
        check_ranges(self, "lora")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank if self.alpha is not None else 2.0


@dataclass
class TrainConfig:
    """`tfm train`."""

    name: str | None = key(
        None,
        "Name of the run directory; unset: made from the config, so that the same command resumes.",
        flag="--name",
        affects="place",
    )
    runs: str = key("runs", RUNS, path=True, affects="place")
    resume: str = key(
        "auto",
        "auto: resume from the checkpoints of the run directory, if it has any;"
        " or a checkpoint or run directory to start from, where it has none.",
        path=True,
        affects="weights",
    )
    force: bool = key(
        False,
        "Resume although config or data have changed; the vocabulary must be the same.",
        affects="weights",
        may_change=True,
    )
    seed: int = key(1, SEED, low=0, high=2**31 - 1, affects="weights")
    device: Device = key(Device.auto, DEVICE, flag="--device", affects="place")
    plugins: list[str] = key([], PLUGINS, affects="place")
    model: ModelConfig = field(default_factory=ModelConfig)
    init: InitConfig = field(default_factory=InitConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    data: DataConfig = field(default_factory=DataConfig)
    schedule: ScheduleConfig = field(default_factory=lambda: ScheduleConfig(factor=1.0))
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainSettings = field(default_factory=TrainSettings)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    comet: CometConfig = field(default_factory=CometConfig)
    left_open: list[str] = key(
        [], "Keys whose values recipe=auto chooses once the text is counted; it fills this list.", affects="log"
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.name is not None:
            check_file_name("name", self.name, also="=,")  # names of a sweep's runs have both
        if self.name == "latest":
            raise ConfigError("name=latest: is the link to the newest finished run. Choose another name")
        self._refuse_another_task()
        self._refuse_without_model()
        self._refuse_length_penalties()
        self._refuse_unaligned()
        if self.train.sharding is Sharding.full:
            self._refuse_what_needs_the_whole_model()
        if self.train.tokens_per_update != AUTO and self.data.max_length > self.train.tokens_per_update:
            raise ConfigError(
                f"data.max_length={self.data.max_length}: more than train.tokens_per_update="
                f"{self.train.tokens_per_update}. Raise the second or lower the first"
            )
        tying = self.model.tie_embeddings
        is_shared = tying.shares_embedding and self.init.from_ is None  # else the model says
        if is_shared and not self.data.tokenizer.joint:
            instead = Tying.none if tying.has_own_output else Tying.decoder
            raise ConfigError(
                f"data.tokenizer.joint=false: model.tie_embeddings={tying.name} needs one vocabulary for both"
                f" languages. Choose model.tie_embeddings={instead.name}, or data.tokenizer.joint=true"
            )
        longest = self.data.max_length
        if self.decode.max_source_length is not None:
            longest = max(longest, self.decode.max_source_length + self.decode.max_extra_length + 1)
        if self.model.positions is Positions.learned and longest > self.model.max_positions:
            raise ConfigError(
                f"model.max_positions={self.model.max_positions}: fewer than the {longest} tokens that"
                " data.max_length or decode.max_source_length + decode.max_extra_length + 1 allow."
                + (f" Raise model.max_positions to {longest}" if self.init.from_ is None else " Lower them")
            )

    def _refuse_another_task(self) -> None:
        """Raise ConfigError for a model, a metric or an option of another task than that of the corpus."""
        task = self.data.trained
        if self.model.name != task.model and self.model.name in [one.model for one in all_tasks()]:
            raise ConfigError(
                f"model.name={self.model.name}: is not for data.task={task.name} (data={self.data.name})."
                f" Set model.name={task.model}, or choose other data"
            )
        if self.model.n_segments != self.data.n_texts:
            holds = "pairs of texts" if self.data.n_texts == 2 else "no pairs of texts"
            raise ConfigError(
                f"model.n_segments={self.model.n_segments}: data={self.data.name} holds {holds}"
                f" (data.columns={self.data.columns}). Set model.n_segments={self.data.n_texts}, or other columns"
            )
        own = task.metric
        is_of_task = self.train.best_metric != ACCURACY if task.translates else self.train.best_metric == own
        if not is_of_task and self.train.best_metric not in (NLL, AUTO):
            raise ConfigError(
                f"train.best_metric={self.train.best_metric}: data.task={task.name} has none."
                f" Set train.best_metric={own}"
            )
        if not task.translates and self.train.metrics != [BLEU]:
            raise ConfigError(
                f"train.metrics=[{','.join(self.train.metrics)}]: data.task={task.name} has no translations."
                " Leave it out"
            )
        if not task.has_source and self.data.subword_dropout:
            raise ConfigError(
                f"data.subword_dropout={self.data.subword_dropout}: not for data.task={task.name}. Leave it out"
            )
        for side, share, what in (
            ("source", self.train.source_word_dropout, "encoder"),
            ("target", self.train.target_word_dropout, "decoder"),
        ):
            if share and what not in task.stacks:
                raise ConfigError(
                    f"train.{side}_word_dropout={share:g}: data.task={task.name} has no {what}. Leave it out"
                )
        if not task.translates and self.decode.batch_invariant:
            raise ConfigError(f"decode.batch_invariant=true: data.task={task.name} translates nothing. Leave it out")
        if not task.translates and not self.data.tokenizer.joint:
            raise ConfigError(
                f"data.tokenizer.joint=false: data.task={task.name} has text in one language. Leave it out"
            )

    def _refuse_without_model(self) -> None:
        """Raise ConfigError for keys of fine-tuning that have no model, or that do not go together."""
        init, task = self.init, self.data.trained
        for setting, is_set in (
            (f"init.freeze=[{','.join(init.freeze)}]", bool(init.freeze)),
            (f"init.extend_vocab={init.extend_vocab}", init.extend_vocab > 0),
            (f"init.extend_languages=[{','.join(init.extend_languages)}]", bool(init.extend_languages)),
            (f"init.like={init.like}", init.like is not None),
            (f"init.keep_languages=[{','.join(init.keep_languages)}]", bool(init.keep_languages)),
            (f"init.encoder_layers={init.encoder_layers}", init.encoder_layers is not None),
            (f"init.decoder_layers={init.decoder_layers}", init.decoder_layers is not None),
            (f"lora.rank={self.lora.rank}", self.lora.rank > 0),
            (f"train.floor={self.train.floor}", bool(self.train.floor)),
        ):
            if is_set and init.from_ is None:
                raise ConfigError(f"{setting}: there is no model that training begins with. Name one with init.from")
        if init.from_ is not None and self.data.tokenizer.model_files:
            raise ConfigError(
                f"data.tokenizer.model={self.data.tokenizer.model}: init.from={init.from_} has tokenizers of its own."
                " Leave out one of the two"
            )
        for side, n_layers in (("encoder", init.encoder_layers), ("decoder", init.decoder_layers)):
            if n_layers is not None and side not in task.stacks:
                raise ConfigError(f"init.{side}_layers={n_layers}: data.task={task.name} has no {side}. Leave it out")
        if self.lora.also and not self.lora.rank:
            raise ConfigError(
                f"lora.also=[{','.join(self.lora.also)}]: without lora.rank all is trained. Set lora.rank, or name"
                " what is not trained with init.freeze"
            )
        if self.train.frozen_precision is FrozenPrecision.bf16 and not init.freeze and not self.lora.rank:
            raise ConfigError(
                "train.frozen_precision=bf16: nothing is frozen. Set lora.rank or init.freeze, or leave it out"
            )
        if self.lora.rank and self.train.ema is not None:
            raise ConfigError(
                f"train.ema={self.train.ema}: averages weights, and with lora.rank={self.lora.rank} those that are"
                " trained are factors of them. Set train.ema=null"
            )

    def _refuse_unaligned(self) -> None:
        """Raise ConfigError for guided alignment of what has none, and for a file of links that nothing reads."""
        weight, data = self.train.guided_alignment, self.data
        if data.alignments is not None and not weight:
            raise ConfigError(
                f"data.alignments={data.alignments}: has no effect without train.guided_alignment. Set"
                " train.guided_alignment=0.1, or leave it out"
            )
        if self.train.full_context_alignment and not weight:
            raise ConfigError(
                "train.full_context_alignment=true: has no effect without train.guided_alignment. Set"
                " train.guided_alignment=0.1, or leave it out"
            )
        if self.train.full_context_alignment and self.model.decoder is not Autoregression.self_attention:
            raise ConfigError(
                f"train.full_context_alignment=true: model.decoder={self.model.decoder.name} cannot attend to the rest"
                " of the target. Set model.decoder=self_attention, or leave it out"
            )
        if weight and not data.trained.translates:
            raise ConfigError(
                f"train.guided_alignment={weight:g}: data.task={data.task} has no cross-attention. Leave it out"
            )
        if weight and data.context_sentences:
            raise ConfigError(
                f"data.context_sentences={data.context_sentences}: puts sentences before the words that"
                f" train.guided_alignment={weight:g} has links of. Leave one of them out"
            )
        if weight and data.subword_dropout:
            raise ConfigError(
                f"data.subword_dropout={data.subword_dropout:g}: cuts words into other pieces than"
                f" train.guided_alignment={weight:g} has links of. Leave one of them out"
            )
        for setting, is_set in (
            ("data.detokenize=true", data.detokenize),
            (f"data.line_tags=[{','.join(data.line_tags)}]", bool(data.line_tags)),
        ):
            if data.alignments is not None and is_set:
                raise ConfigError(
                    f"data.alignments={data.alignments}: {setting} changes the numbers of the words. Leave it out: the"
                    " text is aligned by tfm then"
                )

    def _refuse_length_penalties(self) -> None:
        """Raise ConfigError for a choice of the length penalty that would have no effect."""
        decode, values = self.decode, ",".join(f"{value:g}" for value in self.train.length_penalties)
        for setting, is_so, instead in (
            (f"data.task={self.data.task}", not self.data.trained.translates, "Leave it out"),
            (f"decode.search={decode.search}", decode.search != "beam", "Choose decode=beam, or leave it out"),
            ("decode.beam_size=1", decode.beam_size == 1, "Raise decode.beam_size, or leave it out"),
            (
                f"decode.length_normalization={decode.length_normalization.name}",
                decode.length_normalization is not LengthNormalization.gnmt,
                "Choose gnmt, or leave it out",
            ),
            (
                "train.best_metric=nll",
                self.train.best_metric == NLL,
                "Choose a metric of translations, or leave it out",
            ),
        ):
            if values and is_so:
                raise ConfigError(f"train.length_penalties=[{values}]: has no effect with {setting}. {instead}")

    def _refuse_what_needs_the_whole_model(self) -> None:
        for setting, is_set, instead in (
            (f"train.ema={self.train.ema}", self.train.ema is not None, "train.ema=null"),
            (f"lora.rank={self.lora.rank}", self.lora.rank > 0, "train.sharding=none"),
            (
                f"train.frozen_precision={self.train.frozen_precision.name}",
                self.train.frozen_precision is not FrozenPrecision.fp32,
                "train.frozen_precision=fp32",
            ),
            # A layer that one rank skips is one that others wait for it to gather.
            (f"model.layer_drop={self.model.layer_drop:g}", self.model.layer_drop > 0, "model.layer_drop=0"),
            ("train.max_tokens_per_microbatch=auto", self.train.max_tokens_per_microbatch == AUTO, "a number"),
        ):
            if is_set:
                raise ConfigError(f"{setting}: needs the whole model, which train.sharding=full divides. Set {instead}")
