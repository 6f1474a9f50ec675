"""Keys of a training run: schedule, optimizer, updates, checkpoints; and the commands that take all of them."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from transformer_cli.config.checks import AUTO, check_file_name, check_number_or_auto, check_range
from transformer_cli.config.data import MODEL_OF, DataConfig, Task
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import ModelConfig, Positions, Tying
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

    name: str = "noam"
    factor: float | None = None
    lr: float | None = None
    warmup_steps: Any = 4000  # updates; or auto: a tenth of the run, and more for a wide model
    decay: float | None = None  # of wsd: the part of all steps in which the rate falls
    options: dict[str, Any] = field(default_factory=dict)  # settings of a schedule of your own

    def __post_init__(self) -> None:
        check_range("schedule.factor", self.factor, 1e-6, 100)
        check_range("schedule.lr", self.lr, 1e-9, 10)
        check_number_or_auto("schedule.warmup_steps", self.warmup_steps, 1)
        check_range("schedule.decay", self.decay, 1e-3, 1)
        used = SCHEDULE_HEIGHT.get(self.name)
        if used is None:
            return  # of a plugin, or unknown: checked when the schedule is built
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

    name: str = "adam"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)  # settings of an optimizer of your own

    def __post_init__(self) -> None:
        if len(self.betas) != 2:
            raise ConfigError(f"optimizer.betas={list(self.betas)}: {len(self.betas)} numbers. Give two, as [0.9,0.98]")
        for beta in self.betas:
            check_range("optimizer.betas", beta, 0, 1, below=True)
        self.betas = (self.betas[0], self.betas[1])  # YAML has lists only
        check_range("optimizer.eps", self.eps, 0, 1)
        check_range("optimizer.weight_decay", self.weight_decay, 0, 1)


class Metric(Enum):
    bleu = "bleu"  # of the dev set, by the Translator that `tfm translate` uses; chrF where BLEU cannot be computed
    accuracy = "accuracy"  # of the dev set, in percent: classification only
    nll = "nll"  # nats per target token of the dev set


class Precision(Enum):
    auto = "auto"  # bf16 on a GPU that has it, else fp16 there; fp32 on CPU
    fp32 = "fp32"
    tf32 = "tf32"  # fp32 whose matrix products round their factors to 10 bits; GPUs from Ampere on
    bf16 = "bf16"
    fp16 = "fp16"


class Sharding(Enum):
    none = "none"  # every rank holds the whole model
    full = "full"  # each holds a part of every layer, of its gradient and of the optimizer's memory


class Compile(Enum):
    auto = "auto"  # default on a GPU, none on a CPU; none too where that does not work, which is said
    none = "none"
    default = "default"
    graphs = "graphs"  # and the GPU repeats what it was told once: for small updates


class Device(Enum):
    auto = "auto"  # the first GPU when there is one
    cpu = "cpu"
    cuda = "cuda"


@dataclass
class TrainSettings:
    """The training loop. Tokens are target tokens, steps are optimizer updates; auto is what suits the corpus."""

    tokens_per_update: Any = 25_000  # whatever the hardware: section 5.1; or auto
    tokens_per_batch: Any = 8192  # of one forward pass, either side: bounds memory, moves dropout; or auto
    max_steps: Any = 100_000  # updates after which training ends; or auto: as max_epochs says, or as suits the corpus
    max_epochs: float | None = (
        None  # passes over the training pairs after which training ends, if max_steps is not first
    )
    label_smoothing: float = 0.1
    clip_norm: float | None = None  # the paper clips nothing
    max_skipped: int = 10  # updates in a row whose loss is not a number, and that are left out, before training stops
    rank_timeout: float = 600.0  # seconds that the processes of one training wait for the slowest
    log_every: Any = 100  # updates, as of the next two; or auto
    log_seconds: float = 30.0  # without a line in the log, after which one tells how far training is
    eval_every: Any = 1000
    save_every: Any = 1000
    eval_lines: int = 1000  # dev pairs translated for dev BLEU during training; the first ones
    keep_last: int = 5
    keep_best: int = 1
    average_last: int = 5  # checkpoints averaged at the end; the average ships only if it is no worse on dev
    ema: float | None = None  # decay of a moving average of the weights; it ships only if it is no worse on dev
    best_metric: Metric = Metric.bleu
    patience: int | None = None  # evaluations without a new best before training stops
    samples: int = 3  # dev translations shown in TensorBoard and the log
    precision: Precision = Precision.auto
    profile: bool = False  # trace a few updates, and tell what they spend their time on
    sharding: Sharding = Sharding.none
    recompute: bool = False  # forward passes again in the backward pass: less memory, a third more time
    compile: Compile = Compile.auto  # forward and backward pass to kernels of their own; moves dropout

    def __post_init__(self) -> None:
        for key in ("tokens_per_update", "tokens_per_batch", "max_steps", "log_every", "eval_every", "save_every"):
            check_number_or_auto(f"train.{key}", getattr(self, key), 1)
        check_range("train.max_epochs", self.max_epochs, 1e-3, 1e6)
        check_range("train.log_seconds", self.log_seconds, 0.1)
        for key in ("keep_last", "keep_best", "average_last", "patience", "eval_lines"):
            check_range(f"train.{key}", getattr(self, key), 1)
        check_range("train.samples", self.samples, 0, 100)
        check_range("train.max_skipped", self.max_skipped, 1)
        check_range("train.rank_timeout", self.rank_timeout, 1, 86_400)
        check_range("train.label_smoothing", self.label_smoothing, 0, 1, below=True)
        check_range("train.clip_norm", self.clip_norm, 1e-6)
        check_range("train.ema", self.ema, 0, 1, below=True)
        if self.average_last > self.keep_last:
            raise ConfigError(
                f"train.average_last={self.average_last}: more than train.keep_last={self.keep_last}."
                f" Raise train.keep_last to {self.average_last}"
            )


@dataclass
class EncoderConfig:
    """What a classifier's encoder begins with."""

    init_from: str | None = None  # model file, checkpoint or run directory whose encoder and tokenizer are taken over


@dataclass
class TrainConfig:
    """`tfm train`."""

    name: str | None = None  # of the run directory; unset: made from the config, so the same command resumes
    runs: str = "runs"  # folder that holds the run directories
    resume: str = "auto"  # from the run directory's own checkpoints; without any, from nothing or from the one named
    force: bool = False  # go on although config or data are not those of the checkpoint; not with another vocabulary
    seed: int = 1
    device: Device = Device.auto
    model: ModelConfig = field(default_factory=ModelConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    data: DataConfig = field(default_factory=DataConfig)
    schedule: ScheduleConfig = field(default_factory=lambda: ScheduleConfig(factor=1.0))
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainSettings = field(default_factory=TrainSettings)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        check_range("seed", self.seed, 0, 2**31 - 1)
        if self.name is not None:
            check_file_name("name", self.name, also="=,")  # names of a sweep's runs have both
        if self.name == "latest":
            raise ConfigError("name=latest: is the link to the newest run. Choose another name")
        self._refuse_another_task()
        if self.train.sharding is Sharding.full:
            self._refuse_what_needs_the_whole_model()
        if self.train.tokens_per_update != AUTO and self.data.max_length > self.train.tokens_per_update:
            raise ConfigError(
                f"data.max_length={self.data.max_length}: more than train.tokens_per_update="
                f"{self.train.tokens_per_update}. Raise the second or lower the first"
            )
        if self.model.tie_embeddings is Tying.three_way and not self.data.tokenizer.joint:
            raise ConfigError(
                "data.tokenizer.joint=false: model.tie_embeddings=three_way needs one vocabulary for both languages."
                " Choose model.tie_embeddings=decoder, or data.tokenizer.joint=true"
            )
        longest = self.data.max_length
        if self.decode.max_source_length is not None:
            longest = max(longest, self.decode.max_source_length + self.decode.max_extra_length + 1)
        if self.model.positions is Positions.learned and longest > self.model.max_positions:
            raise ConfigError(
                f"model.max_positions={self.model.max_positions}: fewer than the {longest} tokens that"
                " data.max_length or decode.max_source_length + decode.max_extra_length + 1 allow."
                f" Raise model.max_positions to {longest}"
            )

    def _refuse_another_task(self) -> None:
        """Raise ConfigError for a model, a metric or an option that the corpus's task has no use for."""
        task = self.data.task
        if self.model.name != MODEL_OF[task] and self.model.name in MODEL_OF.values():
            raise ConfigError(
                f"model.name={self.model.name}: does not learn data.task={task.name} (data={self.data.name})."
                f" Set model.name={MODEL_OF[task]}, or choose other data"
            )
        own = {Task.translation: Metric.bleu, Task.classification: Metric.accuracy}.get(task, Metric.nll)
        if self.train.best_metric not in (own, Metric.nll):
            raise ConfigError(
                f"train.best_metric={self.train.best_metric.name}: data.task={task.name} has none."
                f" Set train.best_metric={own.name}"
            )
        if task is not Task.classification and self.encoder.init_from is not None:
            raise ConfigError(
                f"encoder.init_from={self.encoder.init_from}: for data.task=classification only, which"
                f" data={self.data.name} is not. Leave it out, or begin with resume={self.encoder.init_from}"
            )
        if task is Task.language_model and self.data.subword_dropout:
            raise ConfigError(
                f"data.subword_dropout={self.data.subword_dropout}: not for data.task=language_model. Leave it out"
            )
        if task is not Task.translation and self.decode.exact:
            raise ConfigError(f"decode.exact=true: data.task={task.name} translates nothing. Leave it out")
        if task is not Task.translation and not self.data.tokenizer.joint:
            raise ConfigError(
                f"data.tokenizer.joint=false: data.task={task.name} has text in one language. Leave it out"
            )

    def _refuse_what_needs_the_whole_model(self) -> None:
        for setting, is_set, instead in (
            (f"train.ema={self.train.ema}", self.train.ema is not None, "train.ema=null"),
            ("optimizer=muon", self.optimizer.name == "muon", "another optimizer"),
            ("train.tokens_per_batch=auto", self.train.tokens_per_batch == AUTO, "a number"),
        ):
            if is_set:
                raise ConfigError(f"{setting}: needs the whole model, which train.sharding=full divides. Set {instead}")


@dataclass
class DoctorConfig(TrainConfig):
    """`tfm doctor`: the config of the run that it looks at."""

    json: bool = False


@dataclass
class PrepareConfig(TrainConfig):
    """`tfm prepare`: takes what `tfm train` does, so that the same command line serves both, and uses `data`."""

    def __post_init__(self) -> None:
        """Each part has checked itself; whether they suit each other is for `tfm train` to say."""
