"""What fairseq, OpenNMT-py, Marian, Hugging Face, JoeyNMT and Sockeye call our keys, for the message on an unknown one.

Consulted before names that are spelled alike: `lr` is nearer to `lora` than to `schedule.lr`.
"""

from collections.abc import Collection
from dataclasses import dataclass

_IN_TOKENS = "which counts tokens, not sentences"
_OF_AN_UPDATE = (
    "the target tokens of a whole update, which is divided into micro-batches of train.max_tokens_per_microbatch"
)
_IN_UPDATES = "in updates, not epochs"
_BY_GNMT = "the exponent of ((5 + n) / 6)^a for n tokens"


@dataclass(frozen=True)
class Ours:
    """Our key for a name of others: the first of `keys` that a command has, each with a value where it is a switch.

    With `and` between them, several keys are meant together. `clause` says where the meaning differs.
    """

    names: str
    keys: tuple[str, ...]
    clause: str = ""


_TABLE = (
    # Learning rate and optimizer.
    Ours("lr learning_rate peak_lr base_lr max_lr initial_learning_rate learn_rate", ("schedule.lr",)),
    Ours("lr_scheduler lr_scheduler_type decay_method scheduling learning_rate_scheduler_type", ("schedule",)),
    Ours("warmup warmup_updates num_warmup_steps lr_warmup learning_rate_warmup", ("schedule.warmup_steps",)),
    Ours("warmup_ratio", ("schedule.warmup_steps",), "in updates; auto is a tenth of the run"),
    Ours("optim", ("optimizer",)),
    Ours("adam_betas adam_beta1 adam_beta2 beta1 beta2", ("optimizer.betas",), "both in a list, as [0.9,0.98]"),
    Ours("adam_eps adam_epsilon epsilon", ("optimizer.eps",)),
    Ours("wd l2", ("optimizer.weight_decay",)),
    Ours("max_grad_norm clip_grad_norm gradient_clip_val gradient_clipping_threshold", ("train.clip_norm",)),
    Ours("clip_gradients clip_grad clip", ("train.clip_norm",)),
    Ours("label_smoothing_factor smoothing", ("train.label_smoothing",)),
    Ours("guided_alignment_weight lambda_align", ("train.guided_alignment",)),
    Ours("load_alignments train_align", ("data.alignments",)),
    # Batches and lengths of training.
    Ours(
        "batch_size per_device_train_batch_size train_batch_size mini_batch max_sentences",
        ("train.tokens_per_update", "decode.batch_tokens", "batch_tokens"),
        _IN_TOKENS,
    ),
    Ours("eval_batch_size per_device_eval_batch_size", ("decode.batch_tokens",), "which counts source tokens"),
    Ours(
        "max_tokens mini_batch_words max_tokens_per_batch",
        ("train.max_tokens_per_microbatch", "decode.batch_tokens", "batch_tokens"),
        "the most on one device at a time",
    ),
    Ours("update_freq gradient_accumulation_steps accum_count", ("train.tokens_per_update",), _OF_AN_UPDATE),
    Ours("optimizer_delay batch_multiplier update_interval grad_accum", ("train.tokens_per_update",), _OF_AN_UPDATE),
    Ours("epochs epoch max_epoch num_epochs num_train_epochs after_epochs max_num_epochs", ("train.max_epochs",)),
    Ours("max_update max_updates train_steps max_train_steps after_batches updates", ("train.max_steps",)),
    Ours("total_num_update num_steps max_iterations steps", ("train.max_steps",)),
    Ours("save_interval_updates save_checkpoint_steps save_steps save_freq checkpoint_interval", ("train.save_every",)),
    Ours("save_interval save_strategy", ("train.save_every",), _IN_UPDATES),
    Ours("validate_interval_updates valid_steps eval_steps valid_freq validation_freq", ("train.eval_every",)),
    Ours("validate_interval eval_strategy evaluation_strategy", ("train.eval_every",), _IN_UPDATES),
    Ours("log_interval logging_steps report_every disp_freq logging_freq", ("train.log_every",)),
    Ours("early_stopping early_stopping_patience", ("train.patience",), "in evaluations"),
    Ours("max_num_checkpoint_not_improved", ("train.patience",), "in evaluations"),
    Ours("keep_checkpoint keep_interval_updates keep_last_epochs save_total_limit", ("train.keep_last",)),
    Ours("keep_last_params keep_last_checkpoints", ("train.keep_last",)),
    Ours("random_seed manual_seed", ("seed",)),
    Ours("fp16 amp half mixed_precision", ("train.precision=fp16", "decode.precision=fp16")),
    Ours("bf16", ("train.precision=bf16", "decode.precision=bf16")),
    Ours("tf32", ("train.precision=tf32",)),
    Ours("gpu gpus gpuid gpu_ranks cuda use_cuda no_cuda use_cpu cpu", ("device",), "auto, cpu, cuda or mps"),
    Ours("gradient_checkpointing checkpoint_activations", ("train.activation_checkpointing",)),
    Ours("torch_compile", ("train.compile",)),
    Ours("fsdp ddp_backend", ("train.sharding=full",)),
    Ours("ema_decay exponential_smoothing average_decay", ("train.ema",), "the decay of the average"),
    Ours("metric_for_best_model best_checkpoint_metric early_stopping_metric", ("train.best_metric",)),
    Ours("valid_metrics eval_metric eval_bleu optimized_metric", ("train.best_metric",)),
    # Where runs are, and what they begin with.
    Ours("save_dir output_dir model_dir save_model", ("runs",), "the folder of all runs; name= names one"),
    Ours("restore_file train_from resume_from_checkpoint continue_from", ("resume", "checkpoint")),
    Ours("finetune_from_model pretrained_model model_name_or_path load_model", ("init.from", "checkpoint")),
    Ours("models model_path ckpt checkpoint_path checkpoint", ("checkpoint", "init.from")),
    # The model.
    Ours("arch model_type", ("model",), "a file of sizes, as model=base"),
    Ours(
        "layers num_layers n_layers n_layer depth num_hidden_layers",
        ("model.n_encoder_layers and model.n_decoder_layers",),
    ),
    Ours("encoder_layers enc_layers enc_depth num_encoder_layers", ("model.n_encoder_layers",)),
    Ours("decoder_layers dec_layers dec_depth num_decoder_layers", ("model.n_decoder_layers",)),
    Ours("hidden_size hidden_dim model_dim dim_model embed_dim emb_size embedding_dim dim_emb", ("model.d_model",)),
    Ours("rnn_size word_vec_size transformer_model_size encoder_embed_dim decoder_embed_dim", ("model.d_model",)),
    Ours("heads num_heads n_head nhead attention_heads num_attention_heads", ("model.n_heads",)),
    Ours("encoder_attention_heads decoder_attention_heads transformer_heads", ("model.n_heads",), "of both stacks"),
    Ours("transformer_attention_heads", ("model.n_heads",)),
    Ours("ff_size ffn_dim ffn_size feed_forward dim_feedforward intermediate_size", ("model.d_ff",)),
    Ours("transformer_ff transformer_dim_ffn transformer_feed_forward_num_hidden", ("model.d_ff",)),
    Ours("encoder_ffn_embed_dim decoder_ffn_embed_dim encoder_ffn_dim decoder_ffn_dim", ("model.d_ff",)),
    Ours("dropout dropout_rate drop_out transformer_dropout hidden_dropout_prob", ("model.dropout",)),
    Ours("attention_probs_dropout_prob transformer_dropout_attention", ("model.attention_dropout",)),
    Ours("relu_dropout transformer_dropout_ffn", ("model.activation_dropout",)),
    Ours("activation_fn activation_function pos_ffn_activation_fn transformer_ffn_activation", ("model.activation",)),
    Ours("layerdrop encoder_layerdrop decoder_layerdrop", ("model.layer_drop",)),
    Ours("normalize_before encoder_normalize_before decoder_normalize_before pre_norm", ("model.norm=pre",)),
    Ours("share_all_embeddings share_embeddings tied_embeddings_all", ("model.tie_embeddings=three_way",)),
    Ours("share_decoder_input_output_embed share_decoder_embeddings tied_softmax", ("model.tie_embeddings=decoder",)),
    Ours("tied_embeddings", ("model.tie_embeddings=decoder",)),
    Ours("tie_word_embeddings weight_tying_type", ("model.tie_embeddings",)),
    Ours("tied_embeddings_src", ("model.tie_embeddings=source_target",)),
    Ours("lora_r lora_rank", ("lora.rank",)),
    # Text and vocabularies.
    Ours("joined_dictionary share_vocab shared_vocab joint_vocab", ("data.tokenizer.joint",)),
    Ours("dim_vocabs num_words n_words nwords bpe_size", ("data.tokenizer.vocab_size",)),
    Ours("vocab vocabs sentencepiece sentencepiece_model spm_model", ("data.tokenizer.model",)),
    Ours("max_seq_length max_seq_len src_seq_length tgt_seq_length max_sent_length", ("data.max_length",)),
    Ours("max_source_positions max_target_positions max_input_length", ("data.max_length",)),
    # Flags of some of our commands, of which others have another.
    Ours("input input_file", ("input", "source", "data.train")),
    Ours("output output_file", ("output", "save", "name")),
    Ours("src", ("input", "source", "data.source_lang")),
    Ours("tgt trg", ("translation", "reference", "data.target_lang")),
    Ours("src_lang source_language", ("data.source_lang", "source_lang")),
    Ours("tgt_lang trg_lang target_language", ("data.target_lang", "target_lang")),
    Ours("trainpref train_sets train_src train_tgt train_file train_data", ("data.train",)),
    Ours("validpref valid_sets valid_src valid_tgt validation_file valid_data dev_data", ("data.dev",)),
    Ours("testpref test_file test_data", ("data.test",)),
    Ours("bpe_dropout sentencepiece_alphas", ("data.subword_dropout",)),
    Ours("lowercase do_lower_case", ("data.tokenizer.fold_case",)),
    # The search.
    Ours("beam num_beams beam_width beams", ("decode.beam_size",)),
    Ours("lenpen normalize length_penalty_alpha", ("decode.length_penalty",), _BY_GNMT),
    Ours("nbest num_return_sequences nbest_size", ("decode.n_best",)),
    Ours("no_repeat_ngram_size block_ngram_repeat", ("decode.no_repeat_ngram",)),
    Ours("sampling_topk random_sampling_topk", ("decode.top_k",)),
    Ours("sampling_topp random_sampling_topp", ("decode.top_p",)),
    Ours("sampling_temperature random_sampling_temp", ("decode.temperature",)),
    Ours("sampling do_sample random_sampling", ("decode.search=sample",)),
    Ours("max_len_b", ("decode.max_extra_length",)),
    Ours("max_new_tokens max_output_length max_decode_length", ("decode.max_length",)),
    Ours("min_len min_new_tokens", ("decode.min_length",)),
    Ours("diverse_beam_groups num_beam_groups", ("decode.diversity_groups",)),
    Ours("diverse_beam_strength diversity_penalty", ("decode.diversity_strength",)),
)
FOREIGN_NAMES = {name: ours for ours in _TABLE for name in ours.names.split()}


def our_key(name: str, known: Collection[str]) -> tuple[str, str] | None:
    """Our key, or keys, for another toolkit's `name`, with a value where it is a switch; and a clause on its meaning.

    Also the key in a group that alone is called so. None where there is no such key among `known`.
    """
    name = name.strip("-").replace("-", "_").lower()
    if (ours := FOREIGN_NAMES.get(name)) is not None:
        for keys in ours.keys:
            if all(key.partition("=")[0] in known for key in keys.split(" and ")):
                return keys, ours.clause
    named = [key for key in known if key.rpartition(".")[2] == name]
    return (named[0], "") if len(named) == 1 else None


def meant_by(name: str, known: Collection[str]) -> str:
    """`; did you mean ...?` for a name that `our_key` knows; empty for any other."""
    found = our_key(name, known)
    if found is None:
        return ""
    keys, clause = found
    return f"; did you mean `{keys.replace(' and ', '` and `')}`{clause and f', {clause}'}?"
