"""Greedy search over a written Firefox model, in numpy: what an engine of its kind has to say, number for number.

A post-norm Transformer encoder and a decoder of SSRUs (Kim et al. 2019), one sentence at a time. Matrix products are of
8-bit whole numbers, all else is float32. Weights have Marian's names, and W is [in, out].

Shapes: S source, T target, D width, H heads, E head width, K inner width of a product, N outer width, V vocabulary.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from transformer_cli.addons.interop.firefox_library import most_pieces
from transformer_cli.addons.interop.intgemm import ALPHA, COLUMNS, INTGEMM8, OUTPUT, IntgemmArray, read_binary
from transformer_cli.addons.interop.marian_names import OPTIONS
from transformer_cli.config.model import ModelConfig

_EPSILON = np.float32(1e-6)
_SHIFT = np.float32(127)  # is added to activations, so that they are unsigned
EOS = 0


class FirefoxSearch:
    """The model of a file's `content`."""

    def __init__(self, content: bytes, config: ModelConfig) -> None:
        self.config = config
        self.weights: dict[str, IntgemmArray] = {}
        # Whole numbers as float64, in which their sums are exact and products are fast.
        self.int8: dict[str, tuple[IntgemmArray, np.float32]] = {}
        self.sums: dict[str, IntgemmArray] = {}  # of the columns of a weight
        self.alphas: dict[str, np.float32] = {}
        for item in read_binary(content):
            if item.name == OPTIONS:
                continue
            size = int(np.prod(item.shape))
            is_int8 = item.kind == INTGEMM8
            values = np.frombuffer(item.data, np.int8 if is_int8 else "<f4", size)
            multiplier = np.frombuffer(item.data, "<f4", 1, size)[0] if is_int8 else np.float32(1)
            if item.name.endswith(ALPHA):
                self.alphas[item.name.removesuffix(ALPHA)] = np.float32(values[0] / multiplier)
            elif not is_int8:
                self.weights[item.name] = values.reshape(item.shape)
            elif item.name.endswith("Wemb"):
                self.int8[item.name] = values.reshape(item.shape).astype(np.float64), multiplier
                self.sums[item.name] = self.int8[item.name][0].sum(1)
            else:
                self.int8[item.name] = values.reshape(item.shape[::-1]).T.astype(np.float64), multiplier
                self.sums[item.name] = self.int8[item.name][0].sum(0)
        self.target = "Wemb" if "Wemb" in self.int8 else "decoder_Wemb"
        self.source_VD, self.target_VD = (
            self.int8[name][0].astype(np.float32) / self.int8[name][1]
            for name in ("Wemb" if "Wemb" in self.int8 else "encoder_Wemb", self.target)
        )
        d = config.d_model
        self.frequency_D = np.float32(1e-4) ** ((np.arange(d) % (d // 2)).astype(np.float32) / np.float32(d // 2 - 1))
        self.offset_D = (np.arange(d) // (d // 2)).astype(np.float32) * np.float32(np.pi / 2)

    def translate(self, source: Sequence[int], candidates: IntgemmArray | None = None) -> tuple[list[int], float]:
        """The ids of a translation without its end, and how near its closest choice was, in logits.

        The ids of the source end with EOS. There are at most as many as in the engine. `candidates` are the target ids
        of a shortlist.
        """
        memory_SD = self._encode(source)
        layers = range(1, self.config.n_decoder_layers + 1)
        known = {layer: self._keys_and_values(memory_SD, f"decoder_l{layer}_context") for layer in layers}
        states = {layer: np.zeros((1, self.config.d_model), np.float32) for layer in layers}
        found: list[int] = []
        margin = math.inf
        for position in range(most_pieces(len(source))):
            x_1D = self._positions(position, 1)
            if found:  # the first input is a vector of zeros
                x_1D = x_1D + self._scale * self.target_VD[found[-1:]]
            for layer in layers:
                x_1D, states[layer] = self._decoder_layer(x_1D, states[layer], known[layer], f"decoder_l{layer}")
            logits_V = self._logits(x_1D, candidates).reshape(-1)
            best = int(logits_V.argmax())
            margin = min(margin, float(logits_V[best] - np.delete(logits_V, best).max(initial=-np.inf)))
            best = best if candidates is None else int(candidates[best])
            if best == EOS:
                break
            found.append(best)
        return found, margin

    # ---- Layers

    @property
    def _scale(self) -> np.float32:
        return np.float32(np.sqrt(self.config.d_model))

    def _encode(self, source: Sequence[int]) -> IntgemmArray:
        x_SD = self._scale * self.source_VD[list(source)] + self._positions(0, len(source))
        for layer in range(1, self.config.n_encoder_layers + 1):
            name = f"encoder_l{layer}_self"
            y_SD = self._attend(x_SD, self._keys_and_values(x_SD, name), name)
            x_SD = self._feed_forward(self._norm(y_SD + x_SD, f"{name}_Wo"), f"encoder_l{layer}_ffn")
        return x_SD

    def _decoder_layer(
        self, x_1D: IntgemmArray, state_1D: IntgemmArray, known: tuple[IntgemmArray, IntgemmArray], name: str
    ) -> tuple[IntgemmArray, IntgemmArray]:
        gate_1D = 1 / (1 + np.exp(-self._product(x_1D, f"{name}_rnn_Wf", f"{name}_rnn_bf")))
        state_1D = gate_1D * state_1D + (1 - gate_1D) * self._product(x_1D, f"{name}_rnn_W")
        x_1D = self._norm(np.maximum(state_1D, 0) + x_1D, f"{name}_rnn_ffn")
        x_1D = self._norm(self._attend(x_1D, known, f"{name}_context") + x_1D, f"{name}_context_Wo")
        return self._feed_forward(x_1D, f"{name}_ffn"), state_1D

    def _positions(self, first: int, length: int) -> IntgemmArray:
        at = np.arange(first, first + length, dtype=np.float32)[:, None]
        positions: IntgemmArray = np.sin(at * self.frequency_D + self.offset_D).astype(np.float32)
        return positions

    def _norm(self, x_SD: IntgemmArray, name: str) -> IntgemmArray:
        mean = x_SD.mean(-1, keepdims=True)
        deviation = np.sqrt(((x_SD - mean) ** 2).mean(-1, keepdims=True) + _EPSILON)
        normed: IntgemmArray = self.weights[f"{name}_ln_scale"] * ((x_SD - mean) / deviation)
        return normed + self.weights[f"{name}_ln_bias"]

    def _split(self, x_SD: IntgemmArray) -> IntgemmArray:
        """[S, D] -> [H, S, E]."""
        return x_SD.reshape(len(x_SD), self.config.n_heads, -1).transpose(1, 0, 2)

    def _keys_and_values(self, memory_SD: IntgemmArray, name: str) -> tuple[IntgemmArray, IntgemmArray]:
        k_SD, v_SD = (self._product(memory_SD, f"{name}_W{part}", f"{name}_b{part}") for part in "kv")
        return self._split(k_SD), self._split(v_SD)

    def _attend(self, x_TD: IntgemmArray, known: tuple[IntgemmArray, IntgemmArray], name: str) -> IntgemmArray:
        k_HSE, v_HSE = known
        q_HTE = self._split(self._product(x_TD, f"{name}_Wq", f"{name}_bq"))
        scores_HTS = q_HTE @ k_HSE.transpose(0, 2, 1) * np.float32(1 / np.sqrt(q_HTE.shape[-1]))
        weights_HTS = np.exp(scores_HTS - scores_HTS.max(-1, keepdims=True))
        mixed_HTE = weights_HTS / weights_HTS.sum(-1, keepdims=True) @ v_HSE
        return self._product(mixed_HTE.transpose(1, 0, 2).reshape(len(x_TD), -1), f"{name}_Wo", f"{name}_bo")

    def _feed_forward(self, x_SD: IntgemmArray, name: str) -> IntgemmArray:
        hidden = np.maximum(self._product(x_SD, f"{name}_W1", f"{name}_b1"), 0)
        return self._norm(self._product(hidden, f"{name}_W2", f"{name}_b2") + x_SD, f"{name}_ffn")

    # ---- Products

    def _product(self, x_SK: IntgemmArray, name: str, bias: str | None = None) -> IntgemmArray:
        values_KN, multiplier = self.int8[name]
        b_N = self.weights[bias][0] if bias is not None else np.zeros(1, np.float32)
        return _int8_product(x_SK, values_KN, self.sums[name], self.alphas[name], multiplier, b_N)

    def _logits(self, x_1D: IntgemmArray, candidates: IntgemmArray | None) -> IntgemmArray:
        values_VD, multiplier = self.int8[self.target]
        sums_V, bias_V = self.sums[self.target], self.weights["decoder_ff_logit_out_b"][0]
        if candidates is not None:
            values_VD, sums_V, bias_V = values_VD[candidates], sums_V[candidates], bias_V[candidates]
        alpha = self.alphas[OUTPUT]
        logits: IntgemmArray = _int8_product(x_1D, values_VD.T, sums_V, alpha, multiplier, bias_V)[0]
        return logits


def _int8_product(
    x_SK: IntgemmArray,
    values_KN: IntgemmArray,
    sums_N: IntgemmArray,
    alpha: np.float32,
    multiplier: np.float32,
    b_N: IntgemmArray,
) -> IntgemmArray:
    """Whole numbers are summed exactly, as float64; the rest is float32, in the engine's order."""
    shifted_SK = np.clip(np.rint(x_SK * alpha), -127, 127).astype(np.float64) + _SHIFT
    total_SN = (shifted_SK @ values_KN).astype(np.float32)
    unquantise = np.float32(1) / (alpha * multiplier)
    correction_N = _SHIFT * unquantise * sums_N.astype(np.float32)
    product_SN: IntgemmArray = unquantise * total_SN + (b_N - correction_N)
    return product_SN


def candidates_of(
    lists: Sequence[Collection[int]], source: Sequence[int], *, first: int, is_joint: bool
) -> IntgemmArray:
    """The target ids that the engine allows a sentence: the first ones, the lists', the source's own of a joint
    vocabulary, and as many more as make their number a multiple of 8.
    """
    allowed = set(range(first)).union(*(lists[i] for i in source))
    if is_joint:
        allowed |= set(source)
    more = first
    while len(allowed) % COLUMNS:
        allowed.add(more)
        more += 1
    return np.array(sorted(allowed))
