"""Adam and Muon against their definitions, and what they remember through a file and back."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.conftest import slow
from tests.support.each import each
from tests.toy.run import CPU, MODEL, assert_resumes, config, tokenizers
from tests.training.test_diverging import break_loss, states
from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.config.model import Activation, Tying, Vocabulary
from transformer_cli.config.train import OptimizerConfig
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.models.attention import CrossAttention, SelfAttention
from transformer_cli.models.layers import FeedForward
from transformer_cli.training.optimizers import (
    OPTIMIZERS,
    OptimizerKind,
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
    set_lr,
)
from transformer_cli.training.optimizers.registry import allocate_state
from transformer_cli.training.trainer import Trainer

PLAIN = OPTIMIZERS["adam"]  # all its state belongs to a parameter


def toy(*, seed: int = 0, width: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(width, 2).double()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, rate: float = 0.1, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    set_lr(optimizer, rate)
    optimizer.step()


def test_adam_is_algorithm_1_of_its_paper() -> None:
    model, config = toy(), OptimizerConfig()
    optimizer, expected = build_optimizer(model, config), [p.detach().clone() for p in model.parameters()]
    m, v = [torch.zeros_like(p) for p in expected], [torch.zeros_like(p) for p in expected]
    beta1, beta2 = config.betas
    for t in range(1, 4):
        step(model, optimizer, rate=0.1 / t, seed=t)
        for i, parameter in enumerate(model.parameters()):
            assert parameter.grad is not None
            m[i] = beta1 * m[i] + (1 - beta1) * parameter.grad
            v[i] = beta2 * v[i] + (1 - beta2) * parameter.grad**2
            m_hat, v_hat = m[i] / (1 - beta1**t), v[i] / (1 - beta2**t)
            expected[i] -= 0.1 / t * m_hat / (v_hat.sqrt() + config.eps)
            torch.testing.assert_close(parameter.detach(), expected[i])


def test_adamw_decays_matrices_and_leaves_biases_alone() -> None:
    decayed, plain = toy(), toy()
    step(decayed, build_optimizer(decayed, OptimizerConfig(name="adamw", weight_decay=0.5)))
    step(plain, build_optimizer(plain, OptimizerConfig(name="adamw")))
    before = toy()
    torch.testing.assert_close(decayed.weight, plain.weight - 0.1 * 0.5 * before.weight)
    torch.testing.assert_close(decayed.bias, plain.bias)


def test_adafactor_is_algorithm_4_of_its_paper_with_steps_as_large_as_the_rate() -> None:
    """Shazeer and Stern 2018, with its section 6 for the size of a step, and decay 1 - t^-0.8 of section 7.2."""
    model, rate = toy(), 0.01
    optimizer, weight = build_optimizer(model, OptimizerConfig(name="adafactor")), model.weight.detach().clone()
    rows, columns = torch.zeros(2, 1, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64)
    for t in range(1, 4):
        step(model, optimizer, rate=rate, seed=t)
        gradient, beta = model.weight.grad, 1 - t**-0.8
        rows = beta * rows + (1 - beta) * (gradient**2).mean(1, keepdim=True)
        columns = beta * columns + (1 - beta) * (gradient**2).mean(0, keepdim=True)
        update = gradient / torch.sqrt(rows @ columns / rows.mean())
        weight -= rate * update / max(1.0, update.pow(2).mean().sqrt().item())
        torch.testing.assert_close(model.weight.detach(), weight)


def test_adafactor_steps_do_not_depend_on_the_scale_of_the_gradient() -> None:
    """The gradients of a large model have squares below the precision of float32."""
    moved = []
    for scale in (1.0, 2.0**-20):
        model, draw = nn.Linear(16, 8), torch.Generator().manual_seed(1)
        optimizer = build_optimizer(model, OptimizerConfig(name="adafactor"))
        for n in range(6):
            for one in model.parameters():
                one.grad = torch.randn(one.shape, generator=draw) * scale * (1 if n < 5 else 0.125)
            before = model.weight.detach().clone()
            set_lr(optimizer, 2.0**-6)
            optimizer.step()
        moved.append(model.weight.detach() - before)
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-3, atol=1e-6)
    assert moved[0].square().mean().sqrt() < 0.25 * 2.0**-6  # an eighth of the gradient, less than a whole step


@each("setting, shown", [({"betas": (0.9, 0.999)}, r"betas=\[0\.9, 0\.999\]"), ({"eps": 1e-8}, "eps=1e-08")])
def test_adafactor_refuses_the_settings_of_adam(setting: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConfigError, match=rf"^optimizer\.{shown}: optimizer=adafactor has none\. Leave it out$"):
        build_optimizer(toy(), OptimizerConfig(name="adafactor", **setting))


def test_adafactor_holds_a_row_and_a_column_for_each_matrix() -> None:
    model = nn.Linear(300, 200)
    optimizer = build_optimizer(model, OptimizerConfig(name="adafactor"))
    allocate_state(optimizer)
    tensors = optimizer_tensors(optimizer, model.named_parameters(), OPTIMIZERS["adafactor"])
    assert sum(tensor.numel() for tensor in tensors.values()) == 300 + 200 + 200 + 2  # the bias, and two counts


def test_muon_turns_a_matrix_by_nearly_orthogonal_steps_as_large_as_adams() -> None:
    """Jordan et al. 2024: after five iterations the singular values are between 0.68 and 1.13."""
    model = nn.Linear(64, 32).double()
    before = model.weight.detach().clone()
    step(model, build_optimizer(model, OptimizerConfig(name="muon")), rate=0.1)
    moved = (before - model.weight.detach()) / 0.1
    singular = torch.linalg.svdvals(moved) / (0.2 * math.sqrt(64))
    assert 0.6 < singular.min() <= singular.max() < 1.2
    assert 0.68 <= moved.square().mean().sqrt() / 0.2 <= 1.13  # 0.2 is that of AdamW's updates, say Liu et al. 2025


def test_muon_goes_down_along_its_momentum_and_decays_matrices() -> None:
    model, decayed = toy(), toy()
    before, gradient = model.weight.detach().clone(), torch.zeros(2, 3, dtype=torch.float64)
    for subject, decay in ((model, 0.0), (decayed, 0.5)):
        step(subject, build_optimizer(subject, OptimizerConfig(name="muon", weight_decay=decay)))
        assert subject.weight.grad is not None
        gradient = subject.weight.grad
    assert ((before - model.weight.detach()) * gradient).sum() > 0
    torch.testing.assert_close(decayed.weight, model.weight - 0.1 * 0.5 * before)
    torch.testing.assert_close(decayed.bias, model.bias)


def test_muon_leaves_biases_to_adamw() -> None:
    subjects = {name: toy() for name in ("muon", "adamw")}
    for name, model in subjects.items():
        optimizer = build_optimizer(model, OptimizerConfig(name=name))
        for n in range(3):
            step(model, optimizer, seed=n)
    torch.testing.assert_close(subjects["muon"].bias, subjects["adamw"].bias, rtol=0, atol=0)
    assert (subjects["muon"].weight - subjects["adamw"].weight).abs().min() > 0


@each("tying", list(Tying))
def test_muon_takes_every_matrix_between_the_layers_and_no_embedding(tying: Tying) -> None:
    settings = config(model=replace(MODEL, tie_embeddings=tying), optimizer="muon")
    trainer = Trainer(settings, tokenizers(), CPU)
    names = {parameter: name for name, parameter in trainer.model.named_parameters()}
    by_muon, *by_adamw = trainer.optimizer.param_groups
    taken = {names[parameter] for parameter in by_muon["params"]}
    assert taken == {
        name
        for parameter, name in names.items()
        if parameter.dim() == 2 and "embedding" not in name and "own_output" not in name
    }
    assert len(taken) == 11  # four in an encoder layer, seven in a decoder layer
    assert taken | {names[parameter] for group in by_adamw for parameter in group["params"]} == set(names.values())


@pytest.mark.parametrize("swiglu", [True, False])
def test_muon_takes_matrices_that_share_a_tensor_one_by_one(swiglu: bool) -> None:
    """The reference is torch's Muon, where each matrix has a tensor of its own."""
    width, n_heads, d_k, d_v, d_ff = 8, 2, 3, 5, 12
    activation = Activation.swiglu if swiglu else Activation.relu
    torch.manual_seed(0)
    joint = nn.ModuleList(
        [
            SelfAttention(width, n_heads, d_k=d_k, d_v=d_v, dropout=0.0, bias=False),
            CrossAttention(width, n_heads, d_k=d_k, d_v=d_v, dropout=0.0, bias=False),
            FeedForward(width, d_ff, activation=activation, dropout=0.0, bias=False),
        ]
    )
    sizes = {"to_qkv": [6, 6, 10], "to_kv": [6, 10], "to_hidden": [d_ff, d_ff] if swiglu else [d_ff]}
    cut = {name: sizes.get(name.split(".")[1], [len(weight)]) for name, weight in joint.named_parameters()}
    apart = {
        name: [nn.Parameter(part.clone()) for part in weight.detach().split(cut[name])]
        for name, weight in joint.named_parameters()
    }
    assert sum(map(len, apart.values())) == 3 + 1 + 2 + 1 + 1 + (2 if swiglu else 1) + 1
    ours = build_optimizer(joint, OptimizerConfig(name="muon", weight_decay=0.1))
    theirs = torch.optim.Muon(
        [part for parts in apart.values() for part in parts], weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
    )
    for n in range(3):
        for name, weight in joint.named_parameters():
            weight.grad = torch.randn_like(weight)
            for part, gradient in zip(apart[name], weight.grad.split(cut[name]), strict=True):
                part.grad = gradient.clone()
        for optimizer in (ours, theirs):
            set_lr(optimizer, 0.1 / (n + 1))
            optimizer.step()
    for name, weight in joint.named_parameters():
        # A batch of matrices is rounded elsewhere than one of them, to bf16; all parts at once would be 0.02 off.
        torch.testing.assert_close(weight, torch.cat(apart[name]), rtol=0, atol=2e-3, msg=name)


def classifier() -> Classifier:
    torch.manual_seed(1)
    return Classifier(replace(MODEL, name="classifier"), Vocabulary(9, 0), Vocabulary(2, 0))


def test_muon_leaves_the_output_layer_of_a_classifier_to_adamw() -> None:
    model = classifier()
    by_muon, *by_adamw = build_optimizer(model, OptimizerConfig(name="muon")).param_groups
    assert not any(parameter is model.to_classes.weight for parameter in by_muon["params"])
    assert any(parameter is model.to_classes.weight for group in by_adamw for parameter in group["params"])


class Counting(torch.optim.Optimizer):
    """Descends along the sign, and remembers plain numbers, a whole number and one row or column of each matrix."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["n"] = state.get("n", 0) + 1
                state["decay"] = 0.5 * state.get("decay", 1.0) + parameter.grad.abs().mean().item()
                state["count"] = state.get("count", torch.zeros((), dtype=torch.int64)) + 1
                state["nothing"] = None
                if parameter.dim() == 2:
                    state["row"] = state.get("row", 0) + parameter.grad.mean(0, keepdim=True)
                parameter.sub_(parameter.grad.sign() * group["lr"] * state["decay"] / state["n"] ** 0.5)


ELSEWHERE: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,  # which remembers nothing
    "momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, nesterov=True, lr=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, momentum=0.5, centered=True),
    "adafactor": torch.optim.Adafactor,
    "nadam": torch.optim.NAdam,
    "counting": Counting,
}


@pytest.fixture(params=ELSEWHERE)
def registered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an optimizer that somebody else has registered."""
    make = ELSEWHERE[request.param]
    kind = OptimizerKind(lambda model, config: make(model.parameters()))
    monkeypatch.setitem(OPTIMIZERS._entries, "theirs", kind)
    return "theirs"


@pytest.mark.parametrize("registered", ["sgd", "counting"], indirect=True)
def test_A16_a_run_with_any_registered_optimizer_resumes_to_the_last_bit(tmp_path: Path, registered: str) -> None:
    settings = config(optimizer=registered, max_steps=4, save_every=2, eval_every=4)
    assert_resumes(tmp_path, settings, stopped_before=3)


def assert_comes_back(settings: OptimizerConfig, *, n_steps: int) -> None:
    """Assert that an optimizer with the state of another one goes on as that does, to the last bit."""
    model, copy = toy(), toy(seed=9)
    optimizer, restored = build_optimizer(model, settings), build_optimizer(copy, settings)
    for n in range(n_steps):
        step(model, optimizer, seed=n)
    copy.load_state_dict(model.state_dict())
    load_optimizer_tensors(
        restored, copy.named_parameters(), optimizer_tensors(optimizer, model.named_parameters(), PLAIN), PLAIN
    )
    for subject, one in ((model, optimizer), (copy, restored)):
        step(subject, one, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), copy.parameters(), strict=True))


def test_what_any_registered_optimizer_remembers_comes_back_to_the_last_bit(registered: str) -> None:
    assert_comes_back(OptimizerConfig(name=registered), n_steps=2)


@each("name", OPTIMIZERS.names())
def test_restored_state_continues_to_the_last_bit(name: str) -> None:
    assert_comes_back(OptimizerConfig(name=name, weight_decay=0.1), n_steps=1)


@pytest.mark.parametrize("registered", ["momentum", "counting"], indirect=True)
def test_B11_any_registered_optimizer_learns_nothing_from_a_loss_that_is_not_finite(
    monkeypatch: pytest.MonkeyPatch, registered: str
) -> None:
    break_loss(monkeypatch, lambda step: step == 2)
    first, second, third = states(config(optimizer=registered), 3)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], third[name]) for name in first)


@pytest.mark.parametrize("eps", [0.0, 1e-9])
def test_to_begin_remembering_changes_no_weight_and_no_rate(eps: float) -> None:
    model = toy()
    optimizer = build_optimizer(model, OptimizerConfig(name="adamw", eps=eps, weight_decay=0.5))
    set_lr(optimizer, 0.1)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    allocate_state(optimizer)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1]
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", OPTIMIZERS.names())
@pytest.mark.parametrize("at", [1, 3])
def test_B11_an_update_without_a_finite_loss_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, name: str, at: int
) -> None:
    break_loss(monkeypatch, lambda step: step == at)
    settings = replace(config(), optimizer=OptimizerConfig(name=name, weight_decay=0.1))
    found = states(settings, 4)
    after = found[at - 1]
    if at == 1:
        weights = Trainer(settings, tokenizers(), CPU).model.state_dict()
        expected = {key: weights[key] if key in weights else torch.zeros_like(value) for key, value in after.items()}
    else:
        expected = found[at - 2]
    assert all(torch.equal(value, expected[key]) for key, value in after.items())
    assert not any(torch.equal(found[at][key], after[key]) for key in after if key.startswith(("exp_avg/", "momentum")))


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_a_gradient_scaler_skips_a_step_that_overflows_and_scales_less(name: str) -> None:
    model, scaler = nn.Linear(3, 2), torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = build_optimizer(model, OptimizerConfig(name=name))
    kept = []
    for value in (1.0, math.inf, 1.0):
        optimizer.zero_grad()
        scaler.scale(model(torch.full((1, 3), value)).sum()).backward()
        scaler.unscale_(optimizer)
        set_lr(optimizer, 0.1)
        scaler.step(optimizer)
        scaler.update()
        tensors = {**model.state_dict(), **optimizer_tensors(optimizer, model.named_parameters(), PLAIN)}
        kept.append(({key: tensor.clone() for key, tensor in tensors.items()}, scaler.get_scale()))
    (first, _), (second, scale), (third, _) = kept
    assert scale == 2.0
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(second["weight"], third["weight"])


@pytest.mark.parametrize("name", [slow("adamw"), "muon", "adafactor"])
def test_A16_a_run_with_another_optimizer_resumes_to_the_last_bit(tmp_path: Path, name: str) -> None:
    settings = replace(config(max_steps=6), optimizer=OptimizerConfig(name=name, weight_decay=0.1))
    assert_resumes(tmp_path, settings, stopped_before=4)


@each(
    "width, name, message",
    [
        (5, "adam", r"optimizer state 'exp_avg/weight': \[2, 5\] of float64, but .* \[2, 3\]"),
        (3, "muon", r"optimizer state 'exp_avg/weight': \[2, 3\] of float64, but .* nothing"),
        (None, "adam", r"optimizer state 'exp_avg/bias': nothing, but this model asks for"),
    ],
)
def test_state_of_another_model_or_optimizer_is_refused(width: int | None, name: str, message: str) -> None:
    model, tensors = toy(), dict[str, torch.Tensor]()
    if width is not None:
        other = toy(width=width)
        optimizer = build_optimizer(other, OptimizerConfig())
        step(other, optimizer)
        tensors = optimizer_tensors(optimizer, other.named_parameters(), PLAIN)
    refusing = build_optimizer(model, OptimizerConfig(name=name))
    with pytest.raises(CheckpointError, match=message):
        load_optimizer_tensors(refusing, model.named_parameters(), tensors, PLAIN)
